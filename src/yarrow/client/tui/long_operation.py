"""What the service takes long for: the status line says so meanwhile, and Esc gives it up."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from yarrow.client.slash_command import CommandError

T = TypeVar("T")


class LongOperation:
    """Waits for one thing at a time."""

    def __init__(self, on_change: Callable[[str, float], None]) -> None:
        """`told` is given what is waited for and since when, and an empty text when it is over."""
        self._on_change = on_change
        self._cancel: Callable[[], bool] | None = None

    async def run(self, doing: str, call: Awaitable[T]) -> T:
        """Return what a call returns. Raises `WrongWords` when it is given up, or something else is waited for."""
        waiting = asyncio.ensure_future(call)
        if self._cancel is not None:
            waiting.cancel()
            raise CommandError("one thing after the other: Esc gives up what goes on")
        self._cancel = waiting.cancel
        self._on_change(doing, time.monotonic())
        try:
            await asyncio.wait([waiting])
        finally:
            self._cancel = None
            self._on_change("", 0.0)
            # Still under way only when the program ends.
            waiting.cancel()
        if waiting.cancelled():
            raise CommandError(f"{doing} was given up: nothing was made")
        return waiting.result()

    def cancel(self) -> bool:
        """End what goes on; return whether anything did."""
        return self._cancel is not None and self._cancel()
