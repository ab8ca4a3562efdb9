"""A limit on silence that costs nothing per byte: life only notes the time, one timer looks at the note."""

import asyncio
from collections.abc import Callable


class IdleTimer:
    """Calls `expired` once when `alive()` was last called longer ago than the limit.

    `excused` is asked first; True restarts the clock, for a silence that is not the server's.
    """

    def __init__(self, *, expired: Callable[[], None], excused: Callable[[], bool]) -> None:
        self._loop = asyncio.get_running_loop()
        self._expired = expired
        self._excused = excused
        self._limit = 0.0
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self, limit: float | None) -> None:
        """Start the clock anew with a limit in seconds; None is no limit."""
        self.stop()
        self._last = self._loop.time()
        if limit is not None:
            self._limit = limit
            self._timer = self._loop.call_at(self._last + limit, self._check)

    def touch(self) -> None:
        """Note a sign of life."""
        self._last = self._loop.time()

    def stop(self) -> None:
        """Forget the limit; nothing is called any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        now = self._loop.time()
        if now >= self._last + self._limit:
            if not self._excused():
                self._timer = None
                self._expired()
                return
            self._last = now
        self._timer = self._loop.call_at(self._last + self._limit, self._check)
