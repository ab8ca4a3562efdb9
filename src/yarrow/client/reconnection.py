"""Reconnection: distinguishes a lost connection from a refused call and retries for a limited time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from grpc import StatusCode, aio

from yarrow.client.rpc_errors import parse_rpc_error

BACKOFF_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds before each attempt to reach the service again; the last value is repeated."""
MAX_OUTAGE_SECONDS = 60.0
"""Seconds of outage after which the client gives up."""
_LOST_STATUSES = (
    StatusCode.UNAVAILABLE,
    StatusCode.DEADLINE_EXCEEDED,
    StatusCode.CANCELLED,
    StatusCode.INTERNAL,
    StatusCode.UNKNOWN,
)

T = TypeVar("T")


def is_connection_lost(error: aio.AioRpcError) -> bool:
    """Return whether the connection failed. A refusal by the service itself carries a reason."""
    return error.code() in _LOST_STATUSES and not parse_rpc_error(error).reason


class ReconnectBackoff:
    """Back-off between the attempts to restore one lost connection."""

    def __init__(self) -> None:
        self._tries = 0
        self._since = 0.0

    def reset(self) -> None:
        """Restart the back-off after the service has answered."""
        self._tries = 0

    async def wait(self, error: aio.AioRpcError) -> None:
        """Wait before the next attempt. Raises `error` if no connection was lost or after `MAX_OUTAGE_SECONDS`."""
        now = time.monotonic()
        if not self._tries:
            self._since = now
        if not is_connection_lost(error) or now - self._since >= MAX_OUTAGE_SECONDS:
            raise error
        pause = BACKOFF_SECONDS[min(self._tries, len(BACKOFF_SECONDS) - 1)]
        self._tries += 1
        await asyncio.sleep(pause)


async def retry_while_lost(call: Callable[[], Awaitable[T]]) -> T:
    """Make a call, repeated while the connection is lost. Raises `aio.AioRpcError` as `ReconnectBackoff.wait` does."""
    backoff = ReconnectBackoff()
    while True:
        try:
            return await call()
        except aio.AioRpcError as error:
            await backoff.wait(error)
