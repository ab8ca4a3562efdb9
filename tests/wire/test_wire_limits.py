"""The limits on the size of one message, in both directions, over every transport."""

import asyncio
from typing import Any

import grpc
from grpc import aio
from wire_transports import MIB, PROMPT, STATE, Limits, Serve, event, failure, sequences, soon

from yarrow.v1 import agent_pb2 as pb

Code = grpc.StatusCode
SMALL = Limits(into=1000, out=2000)


def request_of(size: int) -> pb.GetStateRequest:
    request = pb.GetStateRequest(session_id="x" * (size - 3))
    assert request.ByteSize() == size
    return request


def response_of(size: int) -> pb.GetStateResponse:
    response = pb.GetStateResponse(session_id="x" * (size - 3))
    assert response.ByteSize() == size
    return response


async def test_a_request_of_the_limit_passes(serve: Serve) -> None:
    async def answer(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        return pb.GetStateResponse(context_tokens=request.ByteSize())

    peer = await serve(limits=SMALL, GetState=answer)
    assert (await peer.stub.GetState(request_of(1000))).context_tokens == 1000


async def test_a_request_over_the_limit_runs_no_handler(serve: Serve) -> None:
    ran = list[int]()

    async def answer(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        ran.append(request.ByteSize())
        return pb.GetStateResponse()

    peer = await serve(limits=SMALL, GetState=answer)
    error = await failure(peer.stub.GetState(request_of(1001)))
    assert error.code() is Code.RESOURCE_EXHAUSTED
    assert error.details() == "CLIENT: Sent message larger than max (1001 vs. 1000)"
    await peer.stub.GetState(request_of(500))
    assert ran == [500]


async def test_a_response_of_the_limit_passes(serve: Serve) -> None:
    async def answer(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        return response_of(2000)

    assert await (await serve(limits=SMALL, GetState=answer)).stub.GetState(STATE) == response_of(2000)


async def test_a_response_over_the_limit_is_not_sent(serve: Serve) -> None:
    async def answer(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        return response_of(2001)

    error = await failure((await serve(limits=SMALL, GetState=answer)).stub.GetState(STATE))
    assert error.code() is Code.RESOURCE_EXHAUSTED
    assert error.details() == "SERVER: Sent message larger than max (2001 vs. 2000)"


async def test_a_message_over_the_limit_ends_its_stream_and_handler(serve: Serve) -> None:
    closed, read = asyncio.Event(), asyncio.Event()
    went_on = list[bool]()

    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        try:
            yield event(1)
            await read.wait()
            yield event(2, "x" * 2000)
            went_on.append(True)
        finally:
            closed.set()

    responses = aiter((await serve(limits=SMALL, Prompt=stream)).stub.Prompt(PROMPT))
    assert (await anext(responses)).event.sequence == 1
    read.set()
    error = await failure(anext(responses))
    assert error.code() is Code.RESOURCE_EXHAUSTED
    assert (error.details() or "").startswith("SERVER: Sent message larger than max (")
    await soon(closed.wait())
    assert not went_on


async def test_a_write_over_the_limit_raises_in_the_handler(serve: Serve) -> None:
    seen = asyncio.Event()

    async def write(request: pb.PromptRequest, context: Any) -> None:
        try:
            await context.write(event(1, "x" * 2000))
        except aio.InternalError:
            seen.set()
            raise

    error = await failure(sequences((await serve(limits=SMALL, Prompt=write)).stub.Prompt(PROMPT)))
    assert error.code() is Code.RESOURCE_EXHAUSTED
    assert seen.is_set()


async def test_the_default_limits_exceed_those_of_grpc(serve: Serve) -> None:
    async def answer(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        return pb.GetStateResponse(session_id=request.session_id * 3)

    peer = await serve(GetState=answer)
    request = pb.GetStateRequest(session_id="x" * 5 * MIB)
    assert len((await peer.stub.GetState(request)).session_id) == 15 * MIB
