"""gRPC statuses of the error tree: one table, and a status with `google.rpc.ErrorInfo` for each error."""

from itertools import accumulate
from typing import Any, NamedTuple

import grpc

from yarrow.errors import Code, InvalidArgument, ProviderError, YarrowError

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
    # Imported lazily: a command whose calls succeed never needs the protobuf of google.rpc.
    from google.rpc import error_details_pb2, status_pb2  # noqa: F401  # pyright: ignore[reportMissingTypeStubs, reportUnusedImport] (it ships none)


async def _abort(context: grpc.aio.ServicerContext[Any, Any], text: str, ending: ErrorStatus) -> None:
    # Imported lazily, as above.
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
