"""A call that the service refused, in words and codes that a command line can act on."""

from grpc import aio
from msgspec import Struct

_DETAILS = "grpc-status-details-bin"
_DOMAIN = "yarrow"
_NOT_CONNECTED = "failed to connect to all addresses"
"""How the transport's own words begin where nobody answers; why is at their end."""


class Refusal(Struct, frozen=True):
    """Why a call failed."""

    message: str
    """One sentence."""
    status: str
    """The name of the gRPC status, such as NOT_FOUND."""
    reason: str = ""
    """The code of Yarrow's error tree, such as SESSION_UNKNOWN; empty when something else answered."""


class SessionNotFound(Exception):
    """No session, or more than one, is meant by what a person typed."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.refusal = Refusal(message, "NOT_FOUND", "SESSION_UNKNOWN")


def refusal(error: aio.AioRpcError) -> Refusal:
    """Return what an RPC error says."""
    message = error.details() or f"the service answered {error.code().name}"
    if message.startswith(_NOT_CONNECTED):
        message = f"the service cannot be reached ({message.rpartition(': ')[2]})"
    # A person knows nothing of the request's fields; the text is what they wrote.
    return Refusal(message.removeprefix("text: "), error.code().name, _reason(error))


def _reason(error: aio.AioRpcError) -> str:
    details = next((value for key, value in error.trailing_metadata() if key == _DETAILS), b"")
    if not isinstance(details, bytes) or not details:
        return ""
    # Here, since a call that succeeds does without it.
    from google.protobuf.message import DecodeError
    from google.rpc import error_details_pb2, status_pb2  # pyright: ignore[reportMissingTypeStubs] (it ships none)

    info = error_details_pb2.ErrorInfo()
    try:
        for detail in status_pb2.Status.FromString(details).details:
            if detail.Unpack(info) and info.domain == _DOMAIN:
                return info.reason
    except DecodeError:
        # Whoever wrote that was not Yarrow.
        pass
    return ""
