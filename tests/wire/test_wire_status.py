"""How a handler chooses its status: codes it sets, aborts, and what reaches the client of them."""

import asyncio
from typing import Any

import grpc
import pytest
from grpc import aio
from wire_transports import PROMPT, STATE, Serve, event, failure, sequences, soon

from yarrow.v1 import agent_pb2 as pb

Code = grpc.StatusCode


async def test_a_set_code_replaces_the_response(serve: Serve) -> None:
    async def refuse(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        context.set_code(Code.NOT_FOUND)
        context.set_details("no such session")
        context.set_trailing_metadata((("reason", "unknown"),))
        return pb.GetStateResponse()

    error = await failure((await serve(GetState=refuse)).stub.GetState(STATE))
    assert (error.code(), error.details()) == (Code.NOT_FOUND, "no such session")
    assert error.trailing_metadata() == aio.Metadata(("reason", "unknown"))


async def test_a_set_code_survives_an_exception(serve: Serve) -> None:
    async def refuse(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        context.set_code(Code.NOT_FOUND)
        context.set_details("lost")
        context.set_trailing_metadata((("reason", "unknown"),))
        raise ValueError("boo")

    error = await failure((await serve(GetState=refuse)).stub.GetState(STATE))
    assert (error.code(), error.details()) == (Code.NOT_FOUND, "Unexpected <class 'ValueError'>: boo")
    assert error.trailing_metadata() == aio.Metadata(("reason", "unknown"))


async def test_the_code_ok_does_not_hide_an_exception(serve: Serve) -> None:
    async def refuse(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        context.set_code(Code.OK)
        raise ValueError("boo")

    assert (await failure((await serve(GetState=refuse)).stub.GetState(STATE))).code() is Code.UNKNOWN


async def test_details_of_a_success_are_not_sent(serve: Serve) -> None:
    async def succeed(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        context.set_details("fine")
        return pb.GetStateResponse()

    call = (await serve(GetState=succeed)).stub.GetState(STATE)
    await call
    assert await call.details() == ""


async def test_an_abort_carries_code_details_and_metadata(serve: Serve) -> None:
    async def refuse(request: pb.GetStateRequest, context: Any) -> None:
        await context.send_initial_metadata((("first", "1"),))
        await context.abort(Code.NOT_FOUND, "gone", (("reason", "unknown"), ("status-bin", b"\x00\xff")))

    call = (await serve(GetState=refuse)).stub.GetState(STATE)
    error = await failure(call)
    assert (error.code(), error.details()) == (Code.NOT_FOUND, "gone")
    assert error.initial_metadata() == aio.Metadata(("first", "1"))
    assert error.trailing_metadata() == aio.Metadata(("reason", "unknown"), ("status-bin", b"\x00\xff"))
    assert await call.trailing_metadata() == error.trailing_metadata()
    assert (await failure(call)).code() is Code.NOT_FOUND


@pytest.mark.parametrize("details", ["", "détail\nof two lines, 100 %", "naïve 🌾"])
async def test_details_are_any_text(serve: Serve, details: str) -> None:
    async def refuse(request: pb.GetStateRequest, context: Any) -> None:
        await context.abort(Code.DATA_LOSS, details)

    assert (await failure((await serve(GetState=refuse)).stub.GetState(STATE))).details() == details


async def test_an_abort_cannot_be_swallowed(serve: Serve) -> None:
    over = asyncio.Event()
    seen = list[Any]()

    async def swallow(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        with pytest.raises(aio.AbortError, match=r"Locally aborted\."):
            await context.abort(Code.NOT_FOUND, "gone")
        seen.append((context.code(), context.details(), context.done(), context.cancelled()))
        with pytest.raises(aio.UsageError, match="Abort already called!"):
            await context.abort(Code.ABORTED, "again")
        over.set()
        return pb.GetStateResponse()

    error = await failure((await serve(GetState=swallow)).stub.GetState(STATE))
    assert (error.code(), error.details()) == (Code.NOT_FOUND, "gone")
    await soon(over.wait())
    assert seen == [(Code.NOT_FOUND, "gone", True, False)]


async def test_an_abort_uses_previously_set_values(serve: Serve) -> None:
    async def refuse(request: pb.GetStateRequest, context: Any) -> None:
        context.set_code(Code.ABORTED)
        context.set_details("set before")
        context.set_trailing_metadata((("set", "before"),))
        await context.abort(Code.NOT_FOUND)

    error = await failure((await serve(GetState=refuse)).stub.GetState(STATE))
    assert (error.code(), error.details()) == (Code.NOT_FOUND, "set before")
    assert error.trailing_metadata() == aio.Metadata(("set", "before"))


async def test_an_abort_accepts_metadata_only_as_a_tuple(serve: Serve) -> None:
    async def refuse(request: pb.GetStateRequest, context: Any) -> None:
        await context.abort(Code.NOT_FOUND, "gone", [("reason", "unknown")])

    error = await failure((await serve(GetState=refuse)).stub.GetState(STATE))
    assert error.code() is Code.UNKNOWN
    assert (error.details() or "").startswith("Unexpected <class 'TypeError'>: ")


async def test_an_abort_with_a_status_object(serve: Serve) -> None:
    class Gone(grpc.Status):
        code = Code.NOT_FOUND
        details = "gone"
        trailing_metadata = (("reason", "unknown"),)

    async def refuse(request: pb.GetStateRequest, context: Any) -> None:
        await context.abort_with_status(Gone())

    error = await failure((await serve(GetState=refuse)).stub.GetState(STATE))
    assert (error.code(), error.details()) == (Code.NOT_FOUND, "gone")
    assert error.trailing_metadata() == aio.Metadata(("reason", "unknown"))


async def test_cancelled_by_the_server_is_an_ordinary_error(serve: Serve) -> None:
    async def refuse(request: pb.GetStateRequest, context: Any) -> None:
        await context.abort(Code.CANCELLED, "shutting down")

    call = (await serve(GetState=refuse)).stub.GetState(STATE)
    error = await failure(call)
    assert (error.code(), error.details()) == (Code.CANCELLED, "shutting down")
    assert call.cancelled()


async def test_a_fresh_context_has_nothing_set(serve: Serve) -> None:
    seen = list[Any]()

    async def look(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        seen.append((context.code(), context.details(), context.trailing_metadata(), context.time_remaining()))
        seen.append((context.cancelled(), context.done(), context.peer_identities(), context.peer_identity_key()))
        assert context.peer()
        context.set_compression(grpc.Compression.Gzip)
        context.disable_next_message_compression()
        return pb.GetStateResponse()

    await (await serve(GetState=look)).stub.GetState(STATE)
    assert seen == [(None, "", (), None), (False, False, None, None)]


async def test_a_set_code_ends_a_stream(serve: Serve) -> None:
    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        yield event(1)
        context.set_code(Code.NOT_FOUND)
        context.set_details("no more")

    responses = aiter((await serve(Prompt=stream)).stub.Prompt(PROMPT))
    assert (await anext(responses)).event.sequence == 1
    error = await failure(anext(responses))
    assert (error.code(), error.details()) == (Code.NOT_FOUND, "no more")


async def test_an_abort_within_a_stream_follows_its_messages(serve: Serve) -> None:
    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        for sequence in range(3):
            yield event(sequence)
        await context.abort(Code.NOT_FOUND, "gone", (("reason", "unknown"),))

    call = (await serve(Prompt=stream)).stub.Prompt(PROMPT)
    got = list[int]()

    async def read_all() -> None:
        async for response in call:
            got.append(response.event.sequence)

    error = await failure(read_all())
    assert got == [0, 1, 2]
    assert (error.code(), error.details()) == (Code.NOT_FOUND, "gone")
    assert error.trailing_metadata() == aio.Metadata(("reason", "unknown"))
    assert await sequences(call) == []
    assert await call.code() is Code.NOT_FOUND


async def test_an_abort_before_the_first_message(serve: Serve) -> None:
    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        await context.abort(Code.FAILED_PRECONDITION, "busy")
        yield event(1)

    error = await failure(sequences((await serve(Prompt=stream)).stub.Prompt(PROMPT)))
    assert (error.code(), error.details()) == (Code.FAILED_PRECONDITION, "busy")


async def test_nothing_is_sent_after_an_abort(serve: Serve) -> None:
    closed = asyncio.Event()
    seen = list[Any]()

    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        for attempt in (
            context.abort(Code.NOT_FOUND, "gone"),
            context.write(event(1)),
            context.send_initial_metadata((("late", "1"),)),
        ):
            try:
                await attempt
            except aio.AbortError:
                seen.append("aborted")
        try:
            yield event(2)
            seen.append("went on")
        finally:
            closed.set()

    error = await failure(sequences((await serve(Prompt=stream)).stub.Prompt(PROMPT)))
    assert error.code() is Code.NOT_FOUND
    await soon(closed.wait())
    assert seen == ["aborted"] * 3


async def test_nothing_is_sent_after_the_handler_returned(serve: Serve) -> None:
    kept = list[Any]()
    over = asyncio.Event()

    async def write(request: pb.PromptRequest, context: Any) -> None:
        kept.append(context)
        context.add_done_callback(lambda _: over.set())
        await context.write(event(1))

    assert await sequences((await serve(Prompt=write)).stub.Prompt(PROMPT)) == [1]
    await soon(over.wait())
    with pytest.raises(aio.UsageError, match=r"RPC already finished\."):
        await kept[0].write(event(2))


async def test_an_exception_within_a_stream_follows_its_messages(serve: Serve) -> None:
    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        yield event(1)
        raise KeyError("k")

    responses = aiter((await serve(Prompt=stream)).stub.Prompt(PROMPT))
    assert (await anext(responses)).event.sequence == 1
    error = await failure(anext(responses))
    assert (error.code(), error.details()) == (Code.UNKNOWN, "Unexpected <class 'KeyError'>: 'k'")


async def test_a_value_that_is_not_a_message_is_unknown(serve: Serve) -> None:
    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        yield event(1)
        yield None

    responses = aiter((await serve(Prompt=stream)).stub.Prompt(PROMPT))
    assert (await anext(responses)).event.sequence == 1
    error = await failure(anext(responses))
    assert error.code() is Code.UNKNOWN
    assert (error.details() or "").startswith("Unexpected <class 'TypeError'>: descriptor 'SerializeToString'")
