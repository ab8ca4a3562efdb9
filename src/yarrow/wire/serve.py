"""Runs the servicer's method for one call and turns what it does into responses and a status."""

import inspect
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import grpc
from grpc import aio

from yarrow.wire.context import ServicerContext, StreamContext
from yarrow.wire.rpc import Rpc, Status

_LOG = logging.getLogger(__name__)

NOT_FOUND = Status(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
HANDLER_CANCELLED = Status(grpc.StatusCode.CANCELLED, "The handler was cancelled.")


def as_is(message: Any) -> Any:
    """Stands in where no serialiser was given."""
    return message


async def serve(rpc: Rpc, handler: "grpc.RpcMethodHandler[Any, Any] | None", max_message_bytes: int) -> None:
    """Answers the call; a handler is a coroutine or an asynchronous generator function.

    Whatever it raises becomes the status UNKNOWN, or the code that it set. A cancelled handler ends the call.
    """
    if handler is None:
        rpc.finish(NOT_FOUND)
        return
    kind = StreamContext if handler.response_streaming else ServicerContext
    context = kind(rpc, max_message_bytes, handler.response_serializer or as_is)
    try:
        await _answer(rpc, handler, context)
        context.conclude()
    except Exception as error:  # noqa: BLE001 whatever a handler raises is its status, never the end of the service
        # After an abort, a cancellation or a message over the limit it is only how the handler was stopped.
        if not (isinstance(error, aio.BaseError) and (rpc.final or rpc.status)):
            _LOG.exception("Unexpected [%s] raised by servicer method [%s]", type(error).__name__, rpc.method)
        context.conclude(error)
    finally:
        # Only a handler that was cancelled, but not by its client, has said nothing yet.
        rpc.finish(HANDLER_CANCELLED)
        context.call_back()


async def _answer(rpc: Rpc, handler: "grpc.RpcMethodHandler[Any, Any]", context: ServicerContext) -> None:
    parse = handler.request_deserializer or as_is
    method: Any = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    async with aclosing(_requests(rpc, parse)) as requests:
        answer = method(requests if handler.request_streaming else parse(rpc.request), context)
        if isinstance(context, StreamContext):
            await _stream(answer, context)
            return
        response = await answer if inspect.isawaitable(answer) else answer
        if context.code() in {None, grpc.StatusCode.OK}:
            rpc.response = context.encode(response)


async def _requests(rpc: Rpc, parse: Callable[[bytes], Any]) -> AsyncGenerator[Any, None]:
    while (data := await rpc.requests.read()) is not None:
        yield parse(data)


async def _stream(answer: Any, context: StreamContext) -> None:
    if inspect.isawaitable(answer):
        await answer
        return
    # Closed here, in this task: a generator left suspended in a write would run its `finally` at some later time.
    async with aclosing(answer):
        async for message in answer:
            await context.write(message)
