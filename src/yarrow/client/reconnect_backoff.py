"""Reconnection: distinguishes a lost connection from a refused call and retries with a back-off."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

from grpc import StatusCode, aio

from yarrow.client.rpc_errors import parse_rpc_error

BACKOFF_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds before each attempt to reach the service again; the last value is repeated."""
MAX_OUTAGE_SECONDS = 60.0
"""Seconds of outage after which a client that is not patient gives up."""
_LOST_STATUSES = (
    StatusCode.UNAVAILABLE,
    StatusCode.DEADLINE_EXCEEDED,
    StatusCode.CANCELLED,
    StatusCode.INTERNAL,
    StatusCode.UNKNOWN,
)

T = TypeVar("T")
ConnectionState = Literal["connected", "reconnecting", "deleted", "unauthenticated"]
"""State of a client of a session; with the last two, no attempt to reconnect can succeed."""


def is_connection_lost(error: aio.AioRpcError) -> bool:
    """Return whether the connection failed. A refusal by the service itself carries a reason."""
    return error.code() in _LOST_STATUSES and not parse_rpc_error(error).reason


def state_after(error: aio.AioRpcError) -> ConnectionState:
    """Return the state of a client of a session whose call failed."""
    if error.code() is StatusCode.UNAUTHENTICATED:
        return "unauthenticated"
    # A session that was only released from memory can be loaded again.
    if error.code() is StatusCode.NOT_FOUND and parse_rpc_error(error).reason != "SESSION_NOT_ACTIVE":
        return "deleted"
    return "reconnecting"


class ReconnectBackoff:
    """Back-off between the attempts to restore one lost connection.

    A patient client never gives up, not even after a refusal, unless the session is deleted or the token is rejected.
    """

    def __init__(self, *, is_patient: bool = False) -> None:
        self._is_patient = is_patient
        self._tries = 0
        self._since = 0.0

    def reset(self) -> None:
        """Restart the back-off after the service has answered."""
        self._tries = 0

    async def wait(self, error: aio.AioRpcError) -> None:
        """Wait before the next attempt. Raises `error` if there is none."""
        now = time.monotonic()
        if not self._tries:
            self._since = now
        is_hopeless = not is_connection_lost(error) or now - self._since >= MAX_OUTAGE_SECONDS
        if state_after(error) != "reconnecting" or (is_hopeless and not self._is_patient):
            raise error
        await self.pause()

    async def pause(self) -> None:
        """Wait before the next attempt, longer each time."""
        seconds = BACKOFF_SECONDS[min(self._tries, len(BACKOFF_SECONDS) - 1)]
        self._tries += 1
        await asyncio.sleep(seconds)


async def retry_while_lost(call: Callable[[], Awaitable[T]]) -> T:
    """Make a call, repeated while the connection is lost. Raises `aio.AioRpcError` as `ReconnectBackoff.wait` does."""
    backoff = ReconnectBackoff()
    while True:
        try:
            return await call()
        except aio.AioRpcError as error:
            await backoff.wait(error)
