"""The known differences between the in-memory channel and a connection, each asserted in both its forms."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import grpc
import pytest
from grpc import aio
from wire_transports import PATIENCE, PROMPT, STATE, Serve, event, soon

from yarrow.v1 import agent_pb2 as pb

Code = grpc.StatusCode
HANGS = 0.4
"""Seconds after which something that never ends is taken to have hung."""


class Difference(NamedTuple):
    """Observations of one probe over a connection and in memory, and why the difference is harmless."""

    probe: Callable[[Serve], Awaitable[object]]
    connection: object
    memory: object
    reason: str


async def answer(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
    return pb.GetStateResponse()


async def raised(outcome: Awaitable[object], patience: float = PATIENCE) -> object:
    """Returns the status code, the public type of the exception, or None for a success."""
    try:
        await asyncio.wait_for(outcome, patience)
    except aio.AioRpcError as error:
        return error.code()
    except (ValueError, TypeError, TimeoutError) as error:
        return type(error)
    except aio.InternalError:
        return aio.InternalError
    return None


# ---- probes ----


async def forbidden_key(serve: Serve) -> object:
    peer = await serve(GetState=answer)

    async def ask() -> None:
        await peer.stub.GetState(STATE, metadata=(("Upper", "1"),))

    return await raised(ask())


async def forbidden_text(serve: Serve) -> object:
    peer = await serve(GetState=answer)

    async def ask() -> None:
        await peer.stub.GetState(STATE, metadata=(("key", "two\nlines"),))

    return await raised(ask())


async def forbidden_trailing_metadata(serve: Serve) -> object:
    async def trail(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        context.set_trailing_metadata((("Upper", "1"),))
        return pb.GetStateResponse()

    return await raised((await serve(GetState=trail)).stub.GetState(STATE))


async def user_agent(serve: Serve) -> object:
    seen = list[str]()

    async def look(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        seen.extend(key for key, _ in context.invocation_metadata())
        return pb.GetStateResponse()

    await (await serve(GetState=look)).stub.GetState(STATE)
    return seen


async def cancelled_while_unwinding(serve: Serve, deadline: float | None = None) -> object:
    entered, seen = asyncio.Event(), asyncio.Queue[bool]()

    async def wait(request: pb.GetStateRequest, context: Any) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.put_nowait(context.cancelled())
            raise

    call = (await serve(GetState=wait)).stub.GetState(STATE, timeout=deadline)
    await soon(entered.wait())
    if deadline is None:
        call.cancel()
    return await soon(seen.get())


async def cancelled_after_the_deadline(serve: Serve) -> object:
    return await cancelled_while_unwinding(serve, deadline=0.4)


async def dropped_stream(serve: Serve) -> object:
    cancelled = asyncio.Event()

    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        yield event(1)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    peer = await serve(Prompt=stream)
    async for _ in peer.stub.Prompt(PROMPT):
        break
    return await raised(cancelled.wait(), HANGS)


async def handler_that_cancels_itself(serve: Serve) -> object:
    async def give_up(request: pb.GetStateRequest, context: Any) -> None:
        raise asyncio.CancelledError

    return await raised((await serve(GetState=give_up)).stub.GetState(STATE), HANGS)


async def abort_with_ok(serve: Serve) -> object:
    async def finish(request: pb.GetStateRequest, context: Any) -> None:
        await context.abort(Code.OK, "fine")

    return await raised((await serve(GetState=finish)).stub.GetState(STATE), HANGS)


async def details_without_utf8(serve: Serve) -> object:
    async def fail(request: pb.GetStateRequest, context: Any) -> None:
        raise OSError("no such file: \udcff")

    return await raised((await serve(GetState=fail)).stub.GetState(STATE), HANGS)


async def plain_function(serve: Serve) -> object:
    threads = list[bool]()

    def look(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        threads.append(threading.current_thread() is threading.main_thread())
        return pb.GetStateResponse()

    await (await serve(GetState=look)).stub.GetState(STATE)
    return threads


async def failing_callback(serve: Serve) -> object:
    reported = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    peer = await serve(GetState=answer)
    call = peer.stub.GetState(STATE)

    def fail(_: object) -> None:
        raise ValueError("broken callback")

    call.add_done_callback(fail)
    try:
        call.cancel()
    except ValueError:
        return "raised to the canceller"
    return f"reported: {reported[0]}"


async def peer_name(serve: Serve) -> object:
    seen = list[bool]()

    async def look(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        seen.append(context.peer() == "in-memory" and not context.auth_context())
        return pb.GetStateResponse()

    await (await serve(GetState=look)).stub.GetState(STATE)
    return seen


KNOWN_DIFFERENCES = {
    row.probe.__name__: row
    for row in (
        Difference(
            forbidden_key,
            connection=aio.InternalError,
            memory=ValueError,
            reason="the connection fails with an opaque batch error, the pipe names the key",
        ),
        Difference(
            forbidden_text,
            connection=aio.InternalError,
            memory=ValueError,
            reason="as for forbidden_key; bytes go under a key that ends in -bin",
        ),
        Difference(
            forbidden_trailing_metadata,
            connection=Code.INTERNAL,
            memory=Code.UNKNOWN,
            reason="the pipe raises ValueError at the line that sets it, the connection fails when it sends it",
        ),
        Difference(
            user_agent,
            connection=["user-agent"],
            memory=[],
            reason="no library stands between the two ends that could name itself",
        ),
        Difference(
            cancelled_while_unwinding,
            connection=False,
            memory=True,
            reason="the pipe knows already why it cancels; True is what a handler would want to read",
        ),
        Difference(
            cancelled_after_the_deadline,
            connection=False,
            memory=True,
            reason="as for cancelled_while_unwinding",
        ),
        Difference(
            dropped_stream,
            connection=TimeoutError,
            memory=None,
            reason="grpc keeps a dropped call alive through its own tasks; the pipe cancels its handler at once",
        ),
        Difference(
            handler_that_cancels_itself,
            connection=TimeoutError,
            memory=Code.CANCELLED,
            reason="grpc sends no status at all and the client hangs; the pipe ends the call",
        ),
        Difference(
            abort_with_ok,
            connection=TimeoutError,
            memory=Code.UNKNOWN,
            reason="grpc sends OK without a response and the client hangs; the pipe raises ValueError in the handler",
        ),
        Difference(
            details_without_utf8,
            connection=TimeoutError,
            memory=Code.UNKNOWN,
            reason="grpc fails to send the status and the client hangs; the pipe escapes what UTF-8 cannot say",
        ),
        Difference(
            plain_function,
            connection=[False],
            memory=[True],
            reason="grpc runs a handler that is no coroutine in a thread; the pipe starts none",
        ),
        Difference(
            failing_callback,
            connection="raised to the canceller",
            memory="reported: broken callback",
            reason="one broken callback must not keep the pipe from ending the call; the event loop reports it",
        ),
        Difference(
            peer_name,
            connection=[False],
            memory=[True],
            reason="there is no address and nothing was secured",
        ),
    )
}


@pytest.mark.parametrize("name", KNOWN_DIFFERENCES)
async def test_known_differences_are_unchanged(serve: Serve, transport: str, name: str) -> None:
    difference = KNOWN_DIFFERENCES[name]
    expected = difference.memory if transport == "memory" else difference.connection
    assert await difference.probe(serve) == expected
