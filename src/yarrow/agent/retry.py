"""Retry policy for model calls."""

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

from yarrow.config.settings import RetrySettings
from yarrow.errors import Code, ProviderError, YarrowError
from yarrow.event.events import Body, RetryScheduled

T = TypeVar("T")

MAX_WAIT_SECONDS = 60.0
"""Maximum delay in seconds; if the backend asks for a longer delay, the call fails immediately."""
JITTER = 0.25
"""Maximum random extension of a delay, as a share; it keeps clients that failed together from retrying together."""
FIXED_TRIES = {Code.EMPTY_RESPONSE: 1, Code.MALFORMED_TOOL_CALL: 2}
"""Maximum retries per failure of the model itself; more retries do not help."""

TOO_LARGE = frozenset({Code.CONTEXT_OVERFLOW, Code.REQUEST_TOO_LARGE})
"""Errors that a smaller request may fix: the token limit of the window, or the byte limit of a server or proxy."""


def _chance() -> float:
    return int.from_bytes(os.urandom(4)) / (1 << 32)


class Clock(Struct, frozen=True):
    """Sleep and randomness, replaceable in tests."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Sleeps for a number of seconds."""
    chance: Callable[[], float] = _chance
    """Returns a random number from 0 (inclusive) to 1 (exclusive)."""


REAL_CLOCK = Clock()


class RetryPolicy:
    """The retries of one model call."""

    def __init__(self, settings: RetrySettings, pause: Clock, emit: Callable[[Body], None]) -> None:
        self._settings = settings
        self._pause = pause
        self._emit = emit
        self._failed = Counter[Code]()
        self._own_wait = min(settings.base_delay, MAX_WAIT_SECONDS)

    async def wait(self, error: YarrowError) -> None:
        """Emit a retry event and wait for the next attempt. Raises `error` if no attempt is left."""
        self._failed[error.code] += 1
        if self._failed.total() > self._settings.attempts or not self._is_transient(error):
            raise error
        seconds = self._seconds(error)
        self._emit(RetryScheduled(self._failed.total() + 1, seconds, error.code, error.message))
        await self._pause.sleep(seconds)

    def _is_transient(self, error: YarrowError) -> bool:
        if error.code in FIXED_TRIES:
            return self._failed[error.code] <= FIXED_TRIES[error.code]
        return isinstance(error, ProviderError) and error.retryable and error.code is not Code.CONTEXT_OVERFLOW

    def _seconds(self, error: YarrowError) -> float:
        """Return the delay in seconds. Raises `ProviderError` if the backend demands more than `MAX_WAIT_SECONDS`."""
        demanded = error.retry_after if isinstance(error, ProviderError) else None
        if demanded is not None and demanded > MAX_WAIT_SECONDS:
            raise _too_long(error, demanded)
        own, self._own_wait = self._own_wait, min(2 * self._own_wait, MAX_WAIT_SECONDS)
        least = own if demanded is None else demanded
        return least * (1 + JITTER * self._pause.chance())


async def run_with_retries(work: Callable[[], Awaitable[T]], retries: RetryPolicy) -> T:
    """Run `work`, with retries, and return its result. Raises its last error if no retry is left."""
    while True:
        try:
            return await work()
        except YarrowError as error:
            await retries.wait(error)


def _too_long(error: YarrowError, demanded: float) -> ProviderError:
    told = ProviderError(
        error.code,
        f"{error.message} (it asks to wait {demanded:,.0f} s; the limit is {MAX_WAIT_SECONDS:g} s: try again later, or "
        "use another model)",
        retryable=True,
    )
    told.retry_after = demanded
    return told
