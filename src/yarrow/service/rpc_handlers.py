"""Wrapper of every RPC handler: decoding, error status, redaction, drain and the log of calls."""

import asyncio
import functools
import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar, cast

import grpc
from google.protobuf.message import DecodeError
from msgspec import Struct

from yarrow.errors import Code, InvalidArgument, YarrowError
from yarrow.service.grpc_status import STATUS_BY_CODE, abort_with_error
from yarrow.service.redactors import redact_response
from yarrow.session.ids import is_valid_id
from yarrow.session.redaction import Redactor
from yarrow.v1.agent_pb2_grpc import AgentServiceServicer, add_AgentServiceServicer_to_server

_logger = logging.getLogger("yarrow.service")


class RpcLog:
    """One call that is being answered; until its `status` is known it counts as cancelled."""

    def __init__(self, method: str, request: object) -> None:
        self.status = "CANCELLED"
        self._method = method
        session = getattr(request, "session_id", "")
        # What is no id could be any text, also one that looks like another line of the log.
        self._session = session if is_valid_id(session) else "-"
        self._started = time.monotonic()

    def write(self) -> None:
        """Write the line."""
        if _logger.isEnabledFor(logging.INFO):
            milliseconds = round((time.monotonic() - self._started) * 1000, 1)
            fields = {
                "method": self._method,
                "session": self._session,
                "status": self.status,
                "milliseconds": milliseconds,
            }
            _logger.info(
                "%s session=%s %s %s ms", self._method, self._session, self.status, milliseconds, extra={"call": fields}
            )


MAX_DRAIN_SECONDS = 10.0
"""For which a client whose stream of requests is refused may go on sending before it is told."""


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


if TYPE_CHECKING:
    # Generic for type checkers alone.
    Handler = grpc.RpcMethodHandler[Any, Any]


class UndecodableRequest(Struct, frozen=True):
    """Stands for a request whose bytes are no message."""


def register_service(servicer: AgentServiceServicer, server: grpc.aio.Server) -> None:
    """Register the service; each of its handlers is given an `UndecodableRequest` for what cannot be read."""
    add_AgentServiceServicer_to_server(servicer, cast("grpc.aio.Server", _SafeDeserializer(server)))


class _SafeDeserializer:
    """What generated code asks of a server."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_registered_method_handlers(self, service: str, handlers: "Mapping[str, Handler]") -> None:
        """Register the handlers by both ways there are: each kind of server knows one of them."""
        tolerant = {name: _with_safe_deserializer(handler) for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, tolerant),))
        self._server.add_registered_method_handlers(service, tolerant)  # pyright: ignore[reportAttributeAccessIssue] (its stubs lack it)

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Leave these: they are the same handlers once more."""


def _with_safe_deserializer(handler: "Handler") -> "Handler":
    parse = cast("Callable[[bytes], Any]", handler.request_deserializer)

    def read(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError:
            return UndecodableRequest()

    return cast("Handler", cast("Any", handler)._replace(request_deserializer=read))
