"""One request, one response: answers, failures and their status, over every transport."""

import asyncio
import contextvars
from typing import Any

import grpc
import pytest
from grpc import aio
from wire_transports import PROMPT, STATE, Serve, failure, sequences, soon

from yarrow.v1 import agent_pb2 as pb

Code = grpc.StatusCode


async def answer(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
    return pb.GetStateResponse(session_id=request.session_id, context_tokens=7)


# ---- answers ----


async def test_a_response_answers_its_request(serve: Serve) -> None:
    peer = await serve(GetState=answer)
    assert await peer.stub.GetState(STATE) == pb.GetStateResponse(session_id="s", context_tokens=7)


async def test_client_and_handler_share_no_message(serve: Serve) -> None:
    kept = list[Any]()

    async def keep(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        kept.extend((request, pb.GetStateResponse(session_id="r")))
        return kept[1]

    peer = await serve(GetState=keep)
    request = pb.GetStateRequest(session_id="q")
    response = await peer.stub.GetState(request)
    assert kept[0] == request
    assert kept[0] is not request
    assert kept[1] == response
    assert kept[1] is not response


async def test_a_call_awaited_twice_returns_the_same_response(serve: Serve) -> None:
    peer = await serve(GetState=answer)
    call = peer.stub.GetState(STATE)
    assert await call is await call


async def test_two_tasks_may_await_one_call(serve: Serve) -> None:
    peer = await serve(GetState=answer)
    call = peer.stub.GetState(STATE)

    async def wait() -> pb.GetStateResponse:
        return await call

    first, second = await asyncio.gather(wait(), wait())
    assert first is second


async def test_a_finished_call_has_its_status(serve: Serve) -> None:
    peer = await serve(GetState=answer)
    call = peer.stub.GetState(STATE)
    assert not call.done()
    assert await call.code() is Code.OK
    assert await call.details() == ""
    assert await call.initial_metadata() == aio.Metadata()
    assert await call.trailing_metadata() == aio.Metadata()
    assert call.done()
    assert not call.cancelled()
    assert call.time_remaining() is None
    assert not call.cancel()
    assert (await call).session_id == "s"


async def test_many_calls_run_at_once(serve: Serve) -> None:
    waiting = asyncio.Barrier(20)

    async def meet(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        await waiting.wait()
        return pb.GetStateResponse(session_id=request.session_id)

    peer = await serve(GetState=meet)
    calls = [peer.stub.GetState(pb.GetStateRequest(session_id=str(number))) for number in range(20)]
    answers = [(await soon(call)).session_id for call in calls]
    assert answers == [str(number) for number in range(20)]


async def test_a_dropped_call_runs_to_its_end(serve: Serve) -> None:
    entered, go, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        entered.set()
        await go.wait()
        ended.set()
        return pb.GetStateResponse()

    peer = await serve(GetState=slow)
    peer.stub.GetState(STATE)
    await soon(entered.wait())
    go.set()
    await soon(ended.wait())


async def test_a_handler_does_not_run_in_the_context_of_its_client(serve: Serve) -> None:
    secret = contextvars.ContextVar("secret", default="unset")
    seen = list[str]()

    async def look(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        seen.append(secret.get())
        secret.set("of the handler")
        return pb.GetStateResponse()

    peer = await serve(GetState=look)
    secret.set("of the client")
    await peer.stub.GetState(STATE)
    await peer.stub.GetState(STATE)
    assert seen == ["unset", "unset"]
    assert secret.get() == "of the client"


async def test_done_callbacks_get_the_call(serve: Serve) -> None:
    peer = await serve(GetState=answer)
    told = list[Any]()
    call = peer.stub.GetState(STATE)
    call.add_done_callback(told.append)
    assert told == []
    await call
    assert told == [call]
    call.add_done_callback(told.append)
    assert told == [call, call]


async def test_waiting_for_the_connection_waits_for_the_response(serve: Serve) -> None:
    async def fail(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        raise RuntimeError("boom")

    peer = await serve(GetState=answer, GetStats=fail)
    call = peer.stub.GetState(STATE)
    await call.wait_for_connection()
    assert call.done()
    assert (await failure(peer.stub.GetStats(pb.GetStatsRequest()).wait_for_connection())).code() is Code.UNKNOWN


# ---- failures ----


async def test_an_exception_is_unknown(serve: Serve) -> None:
    async def fail(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        raise RuntimeError("boom")

    peer = await serve(GetState=fail)
    call = peer.stub.GetState(STATE)
    error = await failure(call)
    assert (error.code(), error.details()) == (Code.UNKNOWN, "Unexpected <class 'RuntimeError'>: boom")
    assert (await call.code(), await call.details()) == (error.code(), error.details())
    assert error.debug_error_string() == "UNKNOWN:Unexpected <class 'RuntimeError'>: boom"


async def test_no_response_is_unknown(serve: Serve) -> None:
    async def nothing(request: pb.GetStateRequest, context: Any) -> None:
        return None

    error = await failure((await serve(GetState=nothing)).stub.GetState(STATE))
    assert error.code() is Code.UNKNOWN
    assert (error.details() or "").startswith("Unexpected <class 'TypeError'>: descriptor 'SerializeToString'")


async def test_an_unregistered_method_is_unimplemented(serve: Serve) -> None:
    peer = await serve()
    ask: aio.UnaryUnaryMultiCallable[bytes, bytes] = peer.channel.unary_unary("/yarrow.v1.AgentService/Nothing")
    unary = await failure(ask(b""))
    assert (unary.code(), unary.details()) == (Code.UNIMPLEMENTED, "Method not found!")
    watch: aio.UnaryStreamMultiCallable[bytes, bytes] = peer.channel.unary_stream("/other/Nothing")
    stream = await failure(anext(aiter(watch(b""))))
    assert (stream.code(), stream.details()) == (Code.UNIMPLEMENTED, "Method not found!")


async def test_a_method_missing_in_the_servicer_is_unimplemented(serve: Serve) -> None:
    peer = await serve()
    details = "Unexpected <class 'NotImplementedError'>: Method not implemented!"
    unary = await failure(peer.stub.GetState(STATE))
    assert (unary.code(), unary.details()) == (Code.UNIMPLEMENTED, details)
    stream = await failure(sequences(peer.stub.Prompt(PROMPT)))
    assert (stream.code(), stream.details()) == (Code.UNIMPLEMENTED, details)


async def test_call_credentials_need_a_secure_channel(serve: Serve, transport: str) -> None:
    peer = await serve(GetState=answer)
    if transport == "tls":
        await peer.stub.GetState(STATE, credentials=grpc.access_token_call_credentials("token"))
        return
    with pytest.raises(aio.UsageError, match="Call credentials are only valid on secure channels"):
        await peer.stub.GetState(STATE, credentials=grpc.access_token_call_credentials("token"))


async def test_cancelling_a_wait_for_the_code_does_not_cancel_the_call(serve: Serve) -> None:
    go = asyncio.Event()

    async def slow(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        await go.wait()
        return pb.GetStateResponse(session_id="still here")

    peer = await serve(GetState=slow)
    call = peer.stub.GetState(STATE)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(call.code(), 0.01)
    go.set()
    assert (await soon(call)).session_id == "still here"
