"""What every RPC handler has in common: errors leave as statuses, and a bug leaves as an id that the log knows."""

import asyncio
import functools
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, NoReturn, Protocol, TypeVar, cast

import grpc

from yarrow.errors import Code, InvalidArgument, YarrowError
from yarrow.service.grpc_status import STATUS_BY_CODE, abort_with_error
from yarrow.service.redactors import redact_response
from yarrow.service.registration import UndecodableRequest
from yarrow.service.rpc_log import RpcLog
from yarrow.session.redaction import Redactor

MAX_DRAIN_SECONDS = 10.0
"""For which a client whose stream of requests is refused may go on sending before it is told."""

_logger = logging.getLogger("yarrow.service")

Unary = TypeVar("Unary", bound=Callable[..., Awaitable[Any]])
Streaming = TypeVar("Streaming", bound=Callable[..., AsyncIterator[Any]])

Request = TypeVar("Request")

Context = grpc.aio.ServicerContext[Any, Any]


class HasRedactor(Protocol):
    """Whoever has handlers."""

    def redactor(self) -> Redactor:
        """Return what takes the keys of providers out of all that is answered."""
        ...


def unary_rpc(handler: Unary) -> Unary:
    """Wrap a unary handler."""

    @functools.wraps(handler)
    async def wrapped(self: HasRedactor, request: object, context: Context) -> Any:
        rpc_log = RpcLog(handler.__name__, request)
        try:
            _check_decoded(request)
            response = await handler(self, request, context)
        except Exception as error:  # noqa: BLE001 - the edge of the service: nothing passes it as a traceback
            await _abort_redacted(context, _to_yarrow_error(error, rpc_log), self.redactor())
        else:
            rpc_log.status = "OK"
            return redact_response(response, self.redactor())
        finally:
            rpc_log.write()

    return cast("Unary", wrapped)


def streaming_rpc(handler: Streaming) -> Streaming:
    """Wrap a server-streaming handler."""

    @functools.wraps(handler)
    async def wrapped(self: HasRedactor, request: object, context: Context) -> AsyncGenerator[Any]:
        rpc_log = RpcLog(handler.__name__, request)
        items = handler(self, request, context)
        try:
            _check_decoded(request)
            async for item in items:
                yield item
            rpc_log.status = "OK"
        except Exception as error:  # noqa: BLE001 - as above
            await _abort_redacted(context, _to_yarrow_error(error, rpc_log), self.redactor())
        finally:
            rpc_log.write()
            # A client that goes away closes this generator; the handler must see it now, not when it is collected.
            await cast("AsyncGenerator[Any]", items).aclose()

    return cast("Streaming", wrapped)


def _check_decoded(request: object) -> None:
    """Raise `InvalidArgument` for a request that could not be read."""
    if isinstance(request, UndecodableRequest):
        raise InvalidArgument("request", "its bytes are no message of this method")


async def drain_requests(requests: AsyncIterator[object]) -> None:
    """Read the rest of a stream of requests that is refused, for `MAX_DRAIN_SECONDS` at most.

    A client that is told in the middle of a write may never look at what it is told: grpc's for Python then says
    INTERNAL, without a reason.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(MAX_DRAIN_SECONDS):
            async for _ in requests:
                pass


async def check_requests(requests: AsyncIterator[Request]) -> AsyncGenerator[Request]:
    """Yield the requests of a stream. Raises `InvalidArgument` at one that could not be read."""
    async for request in requests:
        _check_decoded(request)
        yield request


def _to_yarrow_error(error: Exception, rpc_log: RpcLog) -> YarrowError:
    """Return the error as one of the tree, a bug under its id; raises the end of a call that ended before."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if not isinstance(error, YarrowError):
        number = os.urandom(6).hex()
        _logger.error("bug %s", number, exc_info=error)
        error = YarrowError(
            f"a bug in Yarrow; the log (~/.yarrow/yarrow.log) has it under {number}", code=Code.INTERNAL
        )
    rpc_log.status = STATUS_BY_CODE[error.code].name
    return error


async def _abort_redacted(context: Context, error: YarrowError, redactor: Redactor) -> NoReturn:
    await abort_with_error(context, error, redactor.redact_text(error.message))
    raise AssertionError("abort returned")
