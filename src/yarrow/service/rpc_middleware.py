"""RPC handlers: request checks, logging, redacted responses, and a gRPC status for each error."""

import asyncio
import functools
import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from itertools import accumulate
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias, TypeVar, cast

import grpc
from google.protobuf.message import DecodeError
from msgspec import Struct

from yarrow.errors import Code, InvalidArgument, ProviderError, YarrowError
from yarrow.redaction.redactor import Redactor
from yarrow.service.response_redaction import redact_response
from yarrow.session.ids import is_valid_id
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceServicer, add_AgentServiceServicer_to_server
from yarrow.wire.channel import Registrar

_logger = logging.getLogger("yarrow.service")
_METHODS = pb.DESCRIPTOR.services_by_name["AgentService"].methods


class RpcLog:
    """Log entry of one call; its status is CANCELLED until another is known."""

    def __init__(self, method: str, request: object) -> None:
        self.status = "CANCELLED"
        self._method = method
        session = getattr(request, "session_id", "")
        # An invalid id could be any text, even one that looks like another line of the log.
        self._session = session if is_valid_id(session) else "-"
        self._started = time.monotonic()

    def write(self) -> None:
        """Write the log line."""
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
"""Seconds for which a client may continue to send after its stream of requests was refused."""


Request = TypeVar("Request")

Context = grpc.aio.ServicerContext[Any, Any]


UnaryHandler: TypeAlias = Callable[[Any, Context], Awaitable[Any]]
StreamingHandler: TypeAlias = Callable[[Any, Context], AsyncIterator[Any]]


def wrap_unary(handler: UnaryHandler, redactor: Callable[[], Redactor]) -> UnaryHandler:
    """Return the handler of a method with one response, wrapped; `redactor` returns that of provider keys."""

    @functools.wraps(handler)
    async def wrapped(request: object, context: Context) -> Any:
        rpc_log = RpcLog(handler.__name__, request)
        try:
            _check_decoded(request)
            response = await handler(request, context)
        except Exception as error:  # noqa: BLE001 - the edge of the service: nothing passes it as a traceback
            await _abort_redacted(context, _to_yarrow_error(error, rpc_log), redactor())
        else:
            rpc_log.status = "OK"
            return redact_response(response, redactor())
        finally:
            rpc_log.write()

    return wrapped


def wrap_streaming(handler: StreamingHandler, redactor: Callable[[], Redactor]) -> StreamingHandler:
    """Return the handler of a method with a stream of responses, wrapped like `wrap_unary`."""

    @functools.wraps(handler)
    async def wrapped(request: object, context: Context) -> AsyncGenerator[Any]:
        rpc_log = RpcLog(handler.__name__, request)
        items = handler(request, context)
        try:
            _check_decoded(request)
            async for item in items:
                yield item
            rpc_log.status = "OK"
        except Exception as error:  # noqa: BLE001 - as above
            await _abort_redacted(context, _to_yarrow_error(error, rpc_log), redactor())
        finally:
            rpc_log.write()
            # A disconnecting client closes this generator; the handler must notice now, not at garbage collection.
            await cast("AsyncGenerator[Any]", items).aclose()

    return wrapped


def wrap_handlers(
    groups: Iterable[object], redactor: Callable[[], Redactor]
) -> dict[str, UnaryHandler | StreamingHandler]:
    """Return the wrapped handler of each method of the service, found by its name in one of the groups."""
    handlers: dict[str, UnaryHandler | StreamingHandler] = {}
    for method in _METHODS:
        handler = next(found for group in groups if (found := getattr(group, method.name, None)))
        wrap = wrap_streaming if method.server_streaming else wrap_unary
        handlers[method.name] = wrap(handler, redactor)
    return handlers


def _check_decoded(request: object) -> None:
    """Raise `InvalidArgument` for a request that could not be decoded."""
    if isinstance(request, UndecodableRequest):
        raise InvalidArgument("request", "cannot decode it as a message of this method")


async def drain_requests(requests: AsyncIterator[object]) -> None:
    """Read the rest of a refused stream of requests, for at most `MAX_DRAIN_SECONDS`.

    A client that receives the status during a write may never look at it: grpc for Python then reports INTERNAL,
    without a reason.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(MAX_DRAIN_SECONDS):
            async for _ in requests:
                pass


async def check_requests(requests: AsyncIterator[Request]) -> AsyncGenerator[Request]:
    """Yield the requests of a stream. Raises `InvalidArgument` for one that could not be decoded."""
    async for request in requests:
        _check_decoded(request)
        yield request


def _to_yarrow_error(error: Exception, rpc_log: RpcLog) -> YarrowError:
    """Return the error as one of the tree, a bug under its id; re-raise the error of an aborted call."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if not isinstance(error, YarrowError):
        number = os.urandom(6).hex()
        _logger.error("bug %s", number, exc_info=error)
        error = YarrowError(
            f"a bug in Yarrow; the log (~/.yarrow/yarrow.log) has details under {number}", code=Code.INTERNAL
        )
    rpc_log.status = STATUS_BY_CODE[error.code].name
    return error


async def _abort_redacted(context: Context, error: YarrowError, redactor: Redactor) -> NoReturn:
    await abort_with_error(context, error, redactor.redact_text(error.message))
    raise AssertionError("abort returned")


if TYPE_CHECKING:
    # Generic only for type checkers.
    Handler = grpc.RpcMethodHandler[Any, Any]


class UndecodableRequest(Struct, frozen=True):
    """Placeholder for a request whose bytes are not a valid message."""


def register_service(handlers: Mapping[str, UnaryHandler | StreamingHandler], server: grpc.aio.Server) -> None:
    """Register the handlers of the service; they receive an `UndecodableRequest` for an invalid message."""
    servicer = cast("AgentServiceServicer", SimpleNamespace(**handlers))
    add_AgentServiceServicer_to_server(servicer, cast("grpc.aio.Server", _SafeDeserializer(server)))


class _SafeDeserializer:
    """The part of a server that generated code calls."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_registered_method_handlers(self, service: str, handlers: "Mapping[str, Handler]") -> None:
        """Register the handlers by name in memory only.

        A server of gRPC waits for a call of each registered method separately, so that each call costs more with each
        method.
        """
        tolerant = {name: _with_safe_deserializer(handler) for name, handler in handlers.items()}
        if isinstance(self._server, Registrar):
            self._server.add_registered_method_handlers(service, tolerant)
        else:
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, tolerant),))

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Do nothing: these are the same handlers again."""


def _with_safe_deserializer(handler: "Handler") -> "Handler":
    parse = cast("Callable[[bytes], Any]", handler.request_deserializer)

    def read(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError:
            return UndecodableRequest()

    return cast("Handler", cast("Any", handler)._replace(request_deserializer=read))


DOMAIN = "yarrow"
MAX_MESSAGE_BYTES = 7000
"""Maximum bytes of a status message on the wire, where it occurs twice in 8 KiB of metadata; the rest is truncated."""
_PLAIN_COST, _ESCAPED_COST = 1 + 4 / 3, 3 + 4 / 3
"""Bytes on the wire for one byte of it: unchanged or percent-encoded, and in base64 as well."""

_S = grpc.StatusCode

STATUS_BY_CODE: dict[Code, grpc.StatusCode] = {
    Code.USAGE: _S.INVALID_ARGUMENT,
    Code.CONFIG: _S.FAILED_PRECONDITION,
    Code.INVALID_ARGUMENT: _S.INVALID_ARGUMENT,
    Code.SESSION_UNKNOWN: _S.NOT_FOUND,
    Code.SESSION_NOT_ACTIVE: _S.NOT_FOUND,
    Code.MODEL_UNKNOWN: _S.NOT_FOUND,
    Code.ALREADY_ACCEPTED: _S.ALREADY_EXISTS,
    Code.BUSY: _S.FAILED_PRECONDITION,
    Code.NOT_RUNNING: _S.FAILED_PRECONDITION,
    Code.LOCKED: _S.FAILED_PRECONDITION,
    Code.NOTHING_TO_COMPACT: _S.FAILED_PRECONDITION,
    Code.TOO_LARGE: _S.RESOURCE_EXHAUSTED,
    Code.TOO_MANY: _S.RESOURCE_EXHAUSTED,
    Code.DRAINING: _S.UNAVAILABLE,
    Code.STORAGE: _S.FAILED_PRECONDITION,
    Code.INTERNAL: _S.INTERNAL,
    Code.OVERLOADED: _S.UNAVAILABLE,
    Code.RATE_LIMIT: _S.RESOURCE_EXHAUSTED,
    Code.QUOTA: _S.RESOURCE_EXHAUSTED,
    Code.SERVER_ERROR: _S.UNAVAILABLE,
    Code.CONTEXT_OVERFLOW: _S.FAILED_PRECONDITION,
    Code.INVALID_REQUEST: _S.FAILED_PRECONDITION,
    Code.AUTH: _S.FAILED_PRECONDITION,
    Code.NOT_FOUND: _S.NOT_FOUND,
    Code.REQUEST_TOO_LARGE: _S.RESOURCE_EXHAUSTED,
    Code.UNSUPPORTED_PARAMETER: _S.FAILED_PRECONDITION,
    Code.UNSUPPORTED_FEATURE: _S.FAILED_PRECONDITION,
    Code.STREAM_TRUNCATED: _S.UNAVAILABLE,
    Code.STREAM_STALLED: _S.UNAVAILABLE,
    Code.MALFORMED_RESPONSE: _S.UNAVAILABLE,
    Code.MALFORMED_TOOL_CALL: _S.UNAVAILABLE,
    Code.UNREACHABLE: _S.UNAVAILABLE,
    Code.PROVIDER_SETUP: _S.FAILED_PRECONDITION,
    Code.EMPTY_RESPONSE: _S.UNAVAILABLE,
    Code.OUTPUT_LIMIT: _S.FAILED_PRECONDITION,
    Code.CONTENT_FILTER: _S.FAILED_PRECONDITION,
    Code.ABORTED: _S.ABORTED,
    Code.COMPACTION_INEFFECTIVE: _S.FAILED_PRECONDITION,
    Code.LOOP_DETECTED: _S.FAILED_PRECONDITION,
    Code.TURN_LIMIT: _S.FAILED_PRECONDITION,
}
RETRY_SECONDS: dict[Code, float] = {Code.TOO_MANY: 1.0, Code.DRAINING: 5.0}
"""Seconds after which the same request may be accepted, if waiting helps; a provider's own delay takes precedence."""
UNAUTHENTICATED = "UNAUTHENTICATED"
"""Reason of a call without the token; such a call never reaches the error tree."""


async def abort_with_error(context: grpc.aio.ServicerContext[Any, Any], error: YarrowError, message: str) -> None:
    """End the call with the error's status and its redacted message.

    The reason is attached as `google.rpc.ErrorInfo`.
    """
    metadata = {"field": error.field} if isinstance(error, InvalidArgument) else {}
    seconds = error.retry_after if isinstance(error, ProviderError) else RETRY_SECONDS.get(error.code)
    ending = ErrorStatus(STATUS_BY_CODE[error.code], error.code.value, metadata, seconds)
    await _abort(context, message, ending)


async def abort_unauthenticated(context: grpc.aio.ServicerContext[Any, Any], message: str) -> None:
    """End a call that is not permitted."""
    await _abort(context, message, ErrorStatus(_S.UNAUTHENTICATED, UNAUTHENTICATED, {}, None))


class ErrorStatus(NamedTuple):
    """Status of a refused call, besides its message."""

    status: grpc.StatusCode
    reason: str
    metadata: dict[str, str]
    retry_seconds: float | None
    """None if waiting does not help."""


def _truncate_message(text: str) -> str:
    """Return as much of a message as the transport accepts; a longer one would not arrive at all."""
    # A lone surrogate would also prevent sending the status.
    data = text.encode("utf-8", "backslashreplace")[:MAX_MESSAGE_BYTES]
    sizes = accumulate(_PLAIN_COST if 0x20 <= byte <= 0x7E and byte != ord("%") else _ESCAPED_COST for byte in data)
    return data[: sum(size <= MAX_MESSAGE_BYTES for size in sizes)].decode("utf-8", "ignore")


def preload_details() -> None:
    """Import the modules for a refusal now: once file descriptors have run out, nothing else may work."""
    for name in ("error_details_pb2", "status_pb2"):
        import_module(f"google.rpc.{name}")


async def _abort(context: grpc.aio.ServicerContext[Any, Any], text: str, ending: ErrorStatus) -> None:
    # Imported here: a command whose calls succeed never needs the protobuf of google.rpc.
    from google.rpc import error_details_pb2, status_pb2  # pyright: ignore[reportMissingTypeStubs] (it ships none)

    message = _truncate_message(text)
    details = status_pb2.Status(code=ending.status.value[0], message=message)
    info = error_details_pb2.ErrorInfo(reason=ending.reason, domain=DOMAIN, metadata=ending.metadata)
    details.details.add().Pack(info)
    if ending.retry_seconds is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(round(ending.retry_seconds * 1000))
        details.details.add().Pack(retry)
    await context.abort(ending.status, message, (("grpc-status-details-bin", details.SerializeToString()),))
