"""Guarantees of only the in-memory channel: its numbers, its cleanup, and that it starts no thread."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from typing import Any

import grpc
import pytest
from grpc import aio
from wire_transports import MIB, PROMPT, STATE, event, failure, servicer, soon, stub

from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import add_AgentServiceServicer_to_server
from yarrow.wire.channel import InMemoryChannel, Registrar

Code = grpc.StatusCode


def channel_to(**methods: Any) -> InMemoryChannel:
    registrar = Registrar()
    add_AgentServiceServicer_to_server(servicer(methods), registrar)
    return InMemoryChannel(registrar)


async def test_exiting_the_channel_waits_for_handlers_to_clean_up() -> None:
    entered = asyncio.Event()
    seen = list[str]()

    async def wait(request: pb.PromptRequest, context: Any) -> Any:
        try:
            yield event(1)
            await asyncio.Event().wait()
        finally:
            for step in range(5):
                await asyncio.sleep(0)
                seen.append(f"step {step}")

    async with channel_to(Prompt=wait) as channel:
        call = stub(channel).Prompt(PROMPT)
        await call.read()
        entered.set()
    assert seen == [f"step {step}" for step in range(5)]


async def test_closing_again_does_not_disturb_a_handler_that_cleans_up() -> None:
    entered, cleaning = asyncio.Event(), asyncio.Event()
    seen = list[str]()

    async def wait(request: pb.GetStateRequest, context: Any) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await asyncio.sleep(0.01)
            seen.append("clean")

    channel = channel_to(GetState=wait)
    call = stub(channel).GetState(STATE)
    await soon(entered.wait())
    call.cancel()
    await soon(cleaning.wait())
    await channel.close()
    assert seen == ["clean"]


async def test_closing_ends_a_handler_that_continues_after_its_abort() -> None:
    async def swallow(request: pb.GetStateRequest, context: Any) -> None:
        try:
            await context.abort(Code.NOT_FOUND, "gone")
        except aio.AbortError:
            await asyncio.Event().wait()

    channel = channel_to(GetState=swallow)
    assert (await failure(stub(channel).GetState(STATE))).code() is Code.NOT_FOUND
    await soon(channel.close())


async def test_a_call_starts_no_thread() -> None:
    before = set(threading.enumerate())
    started = set[threading.Thread]()

    async def look(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        started.update(set(threading.enumerate()) - before)
        return pb.GetStateResponse()

    async with channel_to(GetState=look) as channel:
        await stub(channel).GetState(STATE)
    assert not started


async def test_256_responses_wait_for_a_slow_client() -> None:
    written = list[int]()

    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        for sequence in range(1000):
            written.append(sequence)
            yield event(sequence)

    async with channel_to(Prompt=stream) as channel:
        call = stub(channel).Prompt(PROMPT)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(written) == 257  # the last one is in the hands of `write`
        assert await call.read() == event(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(written) == 258


async def test_a_handler_yields_to_the_loop_after_64_responses() -> None:
    written = list[int]()

    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        for sequence in range(200):
            written.append(sequence)
            yield event(sequence)

    async with channel_to(Prompt=stream) as channel:
        call = stub(channel).Prompt(PROMPT)
        assert await call.read() == event(0)
        assert len(written) == 64


async def test_16_requests_wait_for_a_slow_handler() -> None:
    async def wait(requests: Any, context: Any) -> None:
        await asyncio.Event().wait()

    pulled = list[int]()

    async def many() -> AsyncGenerator[pb.ImportSessionRequest]:
        for number in range(1000):
            pulled.append(number)
            yield pb.ImportSessionRequest()

    async with channel_to(ImportSession=wait) as channel:
        call = stub(channel).ImportSession(many())
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(pulled) == 17
        assert not call.done()


async def test_truncated_requests_never_look_complete() -> None:
    # Over a connection they may: grpc ends the iteration first and cancels the handler a moment later.
    reading = asyncio.Event()
    seen = asyncio.Queue[str]()

    async def receive(requests: Any, context: Any) -> None:
        try:
            async for _ in requests:
                reading.set()
            seen.put_nowait("complete")
        except asyncio.CancelledError:
            seen.put_nowait("cancelled")
            raise

    async with channel_to(ImportSession=receive) as channel:
        call = stub(channel).ImportSession()
        await call.write(pb.ImportSessionRequest())
        await soon(reading.wait())
        call.cancel()
        assert await soon(seen.get()) == "cancelled"


async def test_an_answer_wakes_a_client_that_waits_to_write() -> None:
    go = asyncio.Event()

    async def ignore(requests: Any, context: Any) -> pb.ImportSessionResponse:
        await go.wait()
        return pb.ImportSessionResponse(session_id="enough")

    async with channel_to(ImportSession=ignore) as channel:
        call = stub(channel).ImportSession()
        for _ in range(16):
            await soon(call.write(pb.ImportSessionRequest()))
        waiting = asyncio.create_task(call.write(pb.ImportSessionRequest()))
        await asyncio.sleep(0)
        assert not waiting.done()
        go.set()
        await soon(waiting)
        assert (await call).session_id == "enough"


@pytest.mark.parametrize("way", ["dropped", "fed and dropped", "ended and dropped"])
async def test_a_dropped_request_stream_ends(way: str) -> None:
    entered = asyncio.Event()
    outcome = asyncio.Queue[str]()

    async def receive(requests: Any, context: Any) -> pb.ImportSessionResponse:
        entered.set()
        try:
            outcome.put_nowait(str(len([one async for one in requests])))
        except asyncio.CancelledError:
            outcome.put_nowait("cancelled")
            raise
        return pb.ImportSessionResponse()

    async with channel_to(ImportSession=receive) as channel:
        if way == "fed and dropped":
            stub(channel).ImportSession(iter([pb.ImportSessionRequest()]))
        else:
            call = stub(channel).ImportSession()
            await call.write(pb.ImportSessionRequest())
            await soon(entered.wait())
            if way == "ended and dropped":
                await call.done_writing()
            del call
        assert await soon(outcome.get()) == ("cancelled" if way == "dropped" else "1")


async def test_the_default_limits() -> None:
    async def large(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        return pb.GetStateResponse(session_id="x" * 32 * MIB)

    async with channel_to(GetState=large) as channel:
        error = await failure(stub(channel).GetState(pb.GetStateRequest(session_id="x" * 8 * MIB)))
        assert error.details() == f"CLIENT: Sent message larger than max ({8 * MIB + 5} vs. {8 * MIB})"
        error = await failure(stub(channel).GetState(STATE))
        assert error.details() == f"SERVER: Sent message larger than max ({32 * MIB + 5} vs. {32 * MIB})"


async def test_bidirectional_streams_are_rejected() -> None:
    async with channel_to() as channel:
        both: aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream("/other/Both")
        with pytest.raises(NotImplementedError, match="/other/Both"):
            both()


async def test_a_registrar_has_the_interface_of_a_server() -> None:
    registrar = Registrar()
    with pytest.raises(aio.UsageError, match="cannot listen on unix:socket"):
        registrar.add_insecure_port("unix:socket")
    with pytest.raises(aio.UsageError, match="cannot listen on 127"):
        registrar.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(b"key", b"certificate")]))
    await registrar.start()
    assert not await registrar.wait_for_termination()
    await registrar.stop(None)


async def test_only_unexpected_exceptions_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(request: pb.GetStateRequest, context: Any) -> None:
        raise ValueError("a bug")

    async def refuse(request: pb.PromptRequest, context: Any) -> None:
        await context.abort(Code.NOT_FOUND, "gone")

    async with channel_to(GetState=fail, Prompt=refuse) as channel:
        await failure(stub(channel).Prompt(PROMPT).read())
        assert caplog.records == []
        await failure(stub(channel).GetState(STATE))
    (record,) = caplog.records
    assert record.getMessage() == "Unexpected [ValueError] raised by servicer method [/yarrow.v1.AgentService/GetState]"
    assert record.exc_info is not None
