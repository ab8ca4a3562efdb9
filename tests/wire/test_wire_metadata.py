"""Metadata both ways, text and bytes, first and last, over every transport."""

import asyncio
from typing import Any

import grpc
import pytest
from grpc import aio
from wire_transports import PROMPT, STATE, Serve, event, failure, sequences, soon

from yarrow.v1 import agent_pb2 as pb

Code = grpc.StatusCode


def sent(context: Any) -> list[tuple[str, str | bytes]]:
    """Returns what a client sent, without what a connection adds on its own."""
    return [tuple(item) for item in context.invocation_metadata() if item.key != "user-agent"]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (None, []),
        ((), []),
        ((("authorization", "Bearer t"),), [("authorization", "Bearer t")]),
        ([("a", "1"), ("b_c-d.e", "2"), ("a", "3")], [("a", "1"), ("a", "3"), ("b_c-d.e", "2")]),
        (aio.Metadata(("a", "1"), ("b", "2"), ("a", "3")), [("a", "1"), ("a", "3"), ("b", "2")]),
        ((("trace-bin", b"\x00\xff"), ("empty-bin", b"")), [("trace-bin", b"\x00\xff"), ("empty-bin", b"")]),
        ((("text", b"as bytes"), ("blank", "")), [("text", "as bytes"), ("blank", "")]),
        ((("all", " !~ a"),), [("all", " !~ a")]),
    ],
    ids=lambda value: None,
)
async def test_a_handler_sees_the_metadata_of_its_client(serve: Serve, metadata: Any, expected: list[Any]) -> None:
    seen = list[Any]()

    async def look(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        seen.extend(sent(context))
        return pb.GetStateResponse()

    await (await serve(GetState=look)).stub.GetState(STATE, metadata=metadata)
    assert seen == expected


@pytest.mark.parametrize("metadata", [(("trace-bin", "text"),), (("number", 1),)])
async def test_a_value_of_the_wrong_type_is_rejected(serve: Serve, metadata: Any) -> None:
    peer = await serve()
    with pytest.raises(TypeError):
        await peer.stub.GetState(STATE, metadata=metadata)


async def test_initial_metadata_precedes_the_first_message(serve: Serve) -> None:
    go = asyncio.Event()

    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        await context.send_initial_metadata((("first", "1"), ("raw-bin", b"\xff")))
        await go.wait()
        yield event(1)

    call = (await serve(Prompt=stream)).stub.Prompt(PROMPT)
    assert await soon(call.initial_metadata()) == aio.Metadata(("first", "1"), ("raw-bin", b"\xff"))
    go.set()
    assert await sequences(call) == [1]


async def test_a_message_sends_empty_initial_metadata(serve: Serve) -> None:
    go = asyncio.Event()

    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        yield event(1)
        await go.wait()

    call = (await serve(Prompt=stream)).stub.Prompt(PROMPT)
    assert await soon(call.initial_metadata()) == aio.Metadata()
    go.set()
    assert await sequences(call) == [1]


async def test_initial_metadata_is_sent_once(serve: Serve) -> None:
    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        await context.send_initial_metadata([("first", "1")])
        with pytest.raises(aio.UsageError, match="Send initial metadata failed: already sent"):
            await context.send_initial_metadata((("second", "2"),))
        yield event(1)

    call = (await serve(Prompt=stream)).stub.Prompt(PROMPT)
    assert await sequences(call) == [1]
    assert await call.initial_metadata() == aio.Metadata(("first", "1"))


async def test_initial_metadata_is_rejected_after_a_message(serve: Serve) -> None:
    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        yield event(1)
        with pytest.raises(aio.UsageError, match="Send initial metadata failed: already sent"):
            await context.send_initial_metadata((("late", "1"),))
        yield event(2)

    assert await sequences((await serve(Prompt=stream)).stub.Prompt(PROMPT)) == [1, 2]


async def test_initial_and_trailing_metadata_of_a_response(serve: Serve) -> None:
    async def answer(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        await context.send_initial_metadata((("first", "1"),))
        context.set_trailing_metadata([("dropped", "0")])
        context.set_trailing_metadata([("last", "2"), ("last", "3"), ("raw-bin", b"\x00")])
        assert context.trailing_metadata() == (("last", "2"), ("last", "3"), ("raw-bin", b"\x00"))
        return pb.GetStateResponse()

    call = (await serve(GetState=answer)).stub.GetState(STATE)
    assert await call.initial_metadata() == aio.Metadata(("first", "1"))
    assert await call.trailing_metadata() == aio.Metadata(("last", "2"), ("last", "3"), ("raw-bin", b"\x00"))
    await call


async def test_trailing_metadata_of_a_stream(serve: Serve) -> None:
    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        yield event(1)
        context.set_trailing_metadata((("last", "2"),))

    call = (await serve(Prompt=stream)).stub.Prompt(PROMPT)
    assert await sequences(call) == [1]
    assert await call.trailing_metadata() == aio.Metadata(("last", "2"))


LARGE = (("large", "x" * 20_000),)


async def test_metadata_of_a_request_has_a_limit(serve: Serve) -> None:
    async def answer(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        return pb.GetStateResponse()

    peer = await serve(GetState=answer)
    error = await failure(peer.stub.GetState(STATE, metadata=LARGE))
    assert error.code() is Code.RESOURCE_EXHAUSTED
    assert "received metadata size exceeds" in (error.details() or "")
    await peer.stub.GetState(STATE, metadata=(("large", "x" * 7_000),))


async def test_initial_metadata_has_a_limit(serve: Serve) -> None:
    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        await context.send_initial_metadata(LARGE)
        yield event(1)

    error = await failure(sequences((await serve(Prompt=stream)).stub.Prompt(PROMPT)))
    assert error.code() is Code.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(("details", "trailing"), [("x" * 20_000, ()), ("", LARGE)], ids=["details", "metadata"])
async def test_a_status_has_a_limit(serve: Serve, details: str, trailing: Any) -> None:
    async def refuse(request: pb.GetStateRequest, context: Any) -> None:
        await context.abort(Code.NOT_FOUND, details, trailing)

    error = await failure((await serve(GetState=refuse)).stub.GetState(STATE))
    assert error.code() is Code.RESOURCE_EXHAUSTED
    assert "received metadata size exceeds" in (error.details() or "")
