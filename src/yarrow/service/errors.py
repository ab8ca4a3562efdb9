"""The error tree as gRPC statuses: one table, and a status with `google.rpc.ErrorInfo` for each error."""

from typing import Any

import grpc

from yarrow.errors import Code, InvalidArgument, YarrowError

DOMAIN = "yarrow"
MAX_MESSAGE = 3000
"""Bytes of a status message, which travels twice in metadata of at most 8 KiB; the rest is cut off."""

_S = grpc.StatusCode

STATUS: dict[Code, grpc.StatusCode] = {
    Code.USAGE: _S.INVALID_ARGUMENT,
    Code.CONFIG: _S.FAILED_PRECONDITION,
    Code.INVALID_ARGUMENT: _S.INVALID_ARGUMENT,
    Code.SESSION_UNKNOWN: _S.NOT_FOUND,
    Code.SESSION_NOT_ACTIVE: _S.NOT_FOUND,
    Code.MODEL_UNKNOWN: _S.NOT_FOUND,
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


async def refuse(context: grpc.aio.ServicerContext[Any, Any], error: YarrowError) -> None:
    """End the call with the error's status; its reason goes along as `google.rpc.ErrorInfo`."""
    # The protobuf of google.rpc is imported here, since a call that succeeds never needs it.
    from google.rpc import error_details_pb2, status_pb2  # pyright: ignore[reportMissingTypeStubs] (it ships none)

    status = STATUS[error.code]
    # A lone surrogate would keep the status from being sent at all, and too long a one is refused by the transport.
    message = error.message.encode("utf-8", "backslashreplace")[:MAX_MESSAGE].decode("utf-8", "ignore")
    info = error_details_pb2.ErrorInfo(reason=error.code.value, domain=DOMAIN)
    if isinstance(error, InvalidArgument):
        info.metadata["field"] = error.field
    details = status_pb2.Status(code=status.value[0], message=message)
    details.details.add().Pack(info)
    await context.abort(status, message, (("grpc-status-details-bin", details.SerializeToString()),))
