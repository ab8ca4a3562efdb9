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
from yarrow.service.calls import Call
from yarrow.service.discreet import without_secrets
from yarrow.service.errors import STATUS, refuse
from yarrow.service.registering import Undecodable
from yarrow.session.redaction import Redactor

REST_SECONDS = 10.0
"""For which a client whose stream of requests is refused may go on sending before it is told."""

_logger = logging.getLogger("yarrow.service")

Unary = TypeVar("Unary", bound=Callable[..., Awaitable[Any]])
Streaming = TypeVar("Streaming", bound=Callable[..., AsyncIterator[Any]])

Request = TypeVar("Request")

Context = grpc.aio.ServicerContext[Any, Any]


class Discreet(Protocol):
    """Whoever has handlers."""

    def keys(self) -> Redactor:
        """Return what takes the keys of providers out of all that is answered."""
        ...


def answers(handler: Unary) -> Unary:
    """Wrap a unary handler."""

    @functools.wraps(handler)
    async def wrapped(self: Discreet, request: object, context: Context) -> Any:
        call = Call(handler.__name__, request)
        try:
            _check(request)
            response = await handler(self, request, context)
        except Exception as error:  # noqa: BLE001 - the edge of the service: nothing passes it as a traceback
            await _refuse(context, _known(error, call), self.keys())
        else:
            call.status = "OK"
            return without_secrets(response, self.keys())
        finally:
            call.log()

    return cast("Unary", wrapped)


def streams(handler: Streaming) -> Streaming:
    """Wrap a server-streaming handler."""

    @functools.wraps(handler)
    async def wrapped(self: Discreet, request: object, context: Context) -> AsyncGenerator[Any]:
        call = Call(handler.__name__, request)
        items = handler(self, request, context)
        try:
            _check(request)
            async for item in items:
                yield item
            call.status = "OK"
        except Exception as error:  # noqa: BLE001 - as above
            await _refuse(context, _known(error, call), self.keys())
        finally:
            call.log()
            # A client that goes away closes this generator; the handler must see it now, not when it is collected.
            await cast("AsyncGenerator[Any]", items).aclose()

    return cast("Streaming", wrapped)


def _check(request: object) -> None:
    """Raise `InvalidArgument` for a request that could not be read."""
    if isinstance(request, Undecodable):
        raise InvalidArgument("request", "its bytes are no message of this method")


async def let_finish(requests: AsyncIterator[object]) -> None:
    """Read the rest of a stream of requests that is refused, for `REST_SECONDS` at most.

    A client that is told in the middle of a write may never look at what it is told: grpc's for Python then says
    INTERNAL, without a reason.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(REST_SECONDS):
            async for _ in requests:
                pass


async def readable(requests: AsyncIterator[Request]) -> AsyncGenerator[Request]:
    """Yield the requests of a stream. Raises `InvalidArgument` at one that could not be read."""
    async for request in requests:
        _check(request)
        yield request


def _known(error: Exception, call: Call) -> YarrowError:
    """Return the error as one of the tree, a bug under its id; raises the end of a call that ended before."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if not isinstance(error, YarrowError):
        number = os.urandom(6).hex()
        _logger.error("bug %s", number, exc_info=error)
        error = YarrowError(
            f"a bug in Yarrow; the log (~/.yarrow/yarrow.log) has it under {number}", code=Code.INTERNAL
        )
    call.status = STATUS[error.code].name
    return error


async def _refuse(context: Context, error: YarrowError, keys: Redactor) -> NoReturn:
    await refuse(context, error, keys.text(error.message))
    raise AssertionError("abort returned")
