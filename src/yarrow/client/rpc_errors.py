"""Failures of RPCs, as messages and codes that a command line can act on."""

from grpc import aio
from msgspec import Struct

_DETAILS = "grpc-status-details-bin"
_DOMAIN = "yarrow"
_NOT_CONNECTED = "failed to connect to all addresses"
"""Start of gRPC's own message when nothing listens at the address; the cause is at its end."""
_FIELDS = {
    "text": ("the prompt", False),
    "session_id": ("the session", False),
    "other_session_id": ("the other session", False),
    "index": ("the index", False),
    "indices": ("the list of messages", False),
    "name": ("the name", False),
    "cwd": ("the directory", True),
    "settings.tools.names": ("--tools", True),
    "settings.append_system_prompt": ("the text appended to the system prompt", True),
}
"""Names of request fields for the user, and whether the name precedes a message that has its own subject."""
_VERBS = ("is ", "has ", "does ")
"""Starts of messages without a subject."""


class RpcFailure(Struct, frozen=True):
    """Reason for the failure of an RPC."""

    message: str
    """One sentence."""
    status: str
    """Name of the gRPC status, such as NOT_FOUND."""
    reason: str = ""
    """Code of Yarrow's error tree, such as SESSION_UNKNOWN; empty if something other than Yarrow answered."""


class SessionNotFound(Exception):
    """The user's input matches no session, or more than one."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.failure = RpcFailure(message, "NOT_FOUND", "SESSION_UNKNOWN")


def parse_rpc_error(error: aio.AioRpcError) -> RpcFailure:
    """Return the failure that an RPC error describes."""
    message = error.details() or f"the service returned {error.code().name}"
    if message.startswith(_NOT_CONNECTED):
        message = f"the service cannot be reached ({message.rpartition(': ')[2]})"
    return RpcFailure(_replace_field(message), error.code().name, _parse_reason(error))


def _replace_field(message: str) -> str:
    """Return a message without the request field at its start, which means nothing to users."""
    field, colon, rest = message.partition(": ")
    if not colon or field not in _FIELDS:
        return message
    noun, is_said = _FIELDS[field]
    if rest.startswith(_VERBS):
        return f"{noun} {rest}"
    return f"{noun}: {rest}" if is_said else rest


def _parse_reason(error: aio.AioRpcError) -> str:
    details = next((value for key, value in error.trailing_metadata() if key == _DETAILS), b"")
    if not isinstance(details, bytes) or not details:
        return ""
    # Imported here because only a failed call needs it.
    from google.protobuf.message import DecodeError
    from google.rpc import error_details_pb2, status_pb2  # pyright: ignore[reportMissingTypeStubs] (it ships none)

    info = error_details_pb2.ErrorInfo()
    try:
        for detail in status_pb2.Status.FromString(details).details:
            if detail.Unpack(info) and info.domain == _DOMAIN:
                return info.reason
    except DecodeError:
        # The details were not written by Yarrow.
        pass
    return ""
