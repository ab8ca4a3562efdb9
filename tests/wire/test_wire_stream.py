"""One request, many responses: order, both ways of reading, flow and fairness, over every transport."""

import asyncio
from typing import Any

import pytest
from grpc import StatusCode, aio
from wire_transports import PROMPT, STATE, Serve, event, failure, sequences, soon, stopped

from yarrow.v1 import agent_pb2 as pb

MIXED = "The iterator and read/write APIs may not be mixed on a single RPC."


async def three(request: pb.PromptRequest, context: Any) -> Any:
    for sequence in range(3):
        yield event(sequence)


async def test_messages_arrive_in_order(serve: Serve) -> None:
    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        for sequence in range(1000):
            yield event(sequence, "é" * (sequence % 7))

    call = (await serve(Prompt=stream)).stub.Prompt(PROMPT)
    got = [(one.event.sequence, one.event.text_delta.text) async for one in call]
    assert got == [(sequence, "é" * (sequence % 7)) for sequence in range(1000)]
    assert await call.code() is StatusCode.OK


async def test_client_and_handler_share_no_message(serve: Serve) -> None:
    one = event(1)

    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        yield one
        one.event.sequence = 2
        yield one

    assert await sequences((await serve(Prompt=stream)).stub.Prompt(PROMPT)) == [1, 2]


async def test_an_empty_stream(serve: Serve) -> None:
    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        if request.session_id == "never":
            yield event(1)

    call = (await serve(Prompt=stream)).stub.Prompt(PROMPT)
    assert await sequences(call) == []
    assert await call.code() is StatusCode.OK


async def test_a_coroutine_writes_its_stream(serve: Serve) -> None:
    async def write(request: pb.PromptRequest, context: Any) -> None:
        for sequence in range(3):
            await context.write(event(sequence))

    assert await sequences((await serve(Prompt=write)).stub.Prompt(PROMPT)) == [0, 1, 2]


async def test_reading_one_by_one(serve: Serve) -> None:
    call = (await serve(Prompt=three)).stub.Prompt(PROMPT)
    got = list[object]()
    while (one := await call.read()) is not aio.EOF:
        assert isinstance(one, pb.PromptResponse)
        got.append(one.event.sequence)
    assert got == [0, 1, 2]
    assert await call.code() is StatusCode.OK
    assert await call.read() is aio.EOF


async def test_reading_raises_the_failure_every_time(serve: Serve) -> None:
    async def fail(request: pb.PromptRequest, context: Any) -> Any:
        yield event(1)
        await context.abort(StatusCode.NOT_FOUND, "gone")

    call = (await serve(Prompt=fail)).stub.Prompt(PROMPT)
    assert await call.read() == event(1)
    assert (await failure(call.read())).code() is StatusCode.NOT_FOUND
    assert (await failure(call.read())).code() is StatusCode.NOT_FOUND


async def test_an_iteration_may_be_resumed(serve: Serve) -> None:
    call = (await serve(Prompt=three)).stub.Prompt(PROMPT)
    async for one in call:
        assert one.event.sequence == 0
        break
    assert await sequences(call) == [1, 2]
    assert await sequences(call) == []
    assert await call.read() is aio.EOF


async def test_the_two_ways_of_reading_do_not_mix(serve: Serve) -> None:
    peer = await serve(Prompt=three)
    call = peer.stub.Prompt(PROMPT)
    async for _ in call:
        break
    with pytest.raises(aio.UsageError, match=MIXED):
        await call.read()
    call = peer.stub.Prompt(PROMPT)
    await call.read()
    with pytest.raises(aio.UsageError, match=MIXED):
        aiter(call)
    assert await call.read() == event(1)


async def test_a_call_is_not_an_iterator(serve: Serve) -> None:
    call: Any = (await serve(Prompt=three)).stub.Prompt(PROMPT)
    with pytest.raises(TypeError, match="not an async iterator"):
        await anext(call)
    assert await sequences(call) == [0, 1, 2]


async def test_the_status_follows_the_messages(serve: Serve) -> None:
    ended = asyncio.Event()

    def over(context: Any) -> None:
        ended.set()

    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        context.add_done_callback(over)
        for sequence in range(3):
            yield event(sequence)

    call = (await serve(Prompt=stream)).stub.Prompt(PROMPT)
    told = list[Any]()
    call.add_done_callback(told.append)
    await soon(ended.wait())
    assert not call.done()
    assert told == []
    assert await sequences(call) == [0, 1, 2]
    assert await call.code() is StatusCode.OK
    assert call.done()
    assert told == [call]


async def test_waiting_for_the_connection_waits_for_initial_metadata(serve: Serve) -> None:
    async def fail(request: pb.CompactRequest, context: Any) -> Any:
        await context.abort(StatusCode.NOT_FOUND, "gone")
        yield pb.CompactResponse()

    peer = await serve(Prompt=three, Compact=fail)
    call = peer.stub.Prompt(PROMPT)
    await call.wait_for_connection()
    assert await sequences(call) == [0, 1, 2]
    broken = peer.stub.Compact(pb.CompactRequest())
    assert await broken.code() is StatusCode.NOT_FOUND
    assert (await failure(broken.wait_for_connection())).code() is StatusCode.NOT_FOUND


async def test_calls_are_answered_while_streams_are_open(serve: Serve) -> None:
    asked = asyncio.Event()

    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        yield event(1)
        await asked.wait()
        yield event(2)

    async def ask(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        asked.set()
        return pb.GetStateResponse()

    peer = await serve(Prompt=stream, GetState=ask)
    streams = [aiter(peer.stub.Prompt(PROMPT)) for _ in range(5)]
    for one in streams:
        assert (await anext(one)).event.sequence == 1
    await peer.stub.GetState(STATE)
    for one in streams:
        assert await soon(sequences(one)) == [2]


async def test_a_slow_client_suspends_its_handler_and_loses_nothing(serve: Serve) -> None:
    written = 0
    last = 2000

    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        nonlocal written
        for written in range(last + 1):
            yield event(written, "x" * 16384)

    call = (await serve(Prompt=stream)).stub.Prompt(PROMPT)
    await call.wait_for_connection()
    assert await stopped(lambda: written) < last
    assert await sequences(call) == list(range(last + 1))


async def test_a_handler_that_never_awaits_does_not_block_others(serve: Serve) -> None:
    heard = asyncio.Event()

    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        while not heard.is_set():
            yield event(1)

    async def listen() -> None:
        async for _ in (await serve(Prompt=stream)).stub.Prompt(PROMPT):
            heard.set()

    await soon(listen())
