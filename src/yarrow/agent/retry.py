"""When a failed model call is tried again, and how long is waited before."""

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
"""Seconds; a backend that asks for more is told of at once, for nobody wants to be left waiting that long."""
JITTER = 0.25
"""The most by which a wait is longer than it must be, as a share: who failed together need not return together."""
FIXED_TRIES = {Code.EMPTY_RESPONSE: 1, Code.MALFORMED_TOOL_CALL: 2}
"""Failures of the model itself, by how often such a call is tried again: more does not help."""

TOO_LARGE = frozenset({Code.CONTEXT_OVERFLOW, Code.REQUEST_TOO_LARGE})
"""What less to send may put right: a window has an end in tokens, a server or what stands before it one in bytes."""


def _chance() -> float:
    return int.from_bytes(os.urandom(4)) / (1 << 32)


class Clock(Struct, frozen=True):
    """How waiting is done; a test does it without time."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Takes seconds."""
    chance: Callable[[], float] = _chance
    """Returns a number from 0 up to 1."""


REAL_CLOCK = Clock()


class RetryPolicy:
    """The tries of one model call."""

    def __init__(self, settings: RetrySettings, pause: Clock, emit: Callable[[Body], None]) -> None:
        self._settings = settings
        self._pause = pause
        self._emit = emit
        self._failed = Counter[Code]()
        self._own_wait = min(settings.base_delay, MAX_WAIT_SECONDS)

    async def wait(self, error: YarrowError) -> None:
        """Wait for the next try, told by an event first. Raises `error` when there is none."""
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
        """Return how long to wait. Raises a `ProviderError` when the backend demands more than `MAX_WAIT_SECONDS`."""
        demanded = error.retry_after if isinstance(error, ProviderError) else None
        if demanded is not None and demanded > MAX_WAIT_SECONDS:
            raise _too_long(error, demanded)
        own, self._own_wait = self._own_wait, min(2 * self._own_wait, MAX_WAIT_SECONDS)
        least = own if demanded is None else demanded
        return least * (1 + JITTER * self._pause.chance())


async def run_with_retries(work: Callable[[], Awaitable[T]], retries: RetryPolicy) -> T:
    """Return what `work` returns in the end. Raises what it raises when it is not tried again."""
    while True:
        try:
            return await work()
        except YarrowError as error:
            await retries.wait(error)


def _too_long(error: YarrowError, demanded: float) -> ProviderError:
    told = ProviderError(
        error.code,
        f"{error.message} (it asks to wait {demanded:,.0f} s, more than the {MAX_WAIT_SECONDS:g} s that are waited: "
        "try again later, or use another model)",
        retryable=True,
    )
    told.retry_after = demanded
    return told
