"""What the service takes long for: the status line says so meanwhile, and Esc gives it up."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from yarrow.client.command import WrongWords

T = TypeVar("T")


class Waiting:
    """Waits for one thing at a time."""

    def __init__(self, told: Callable[[str, float], None]) -> None:
        """`told` is given what is waited for and since when, and an empty text when it is over."""
        self._told = told
        self._cancel: Callable[[], bool] | None = None

    async def wait(self, doing: str, call: Awaitable[T]) -> T:
        """Return what a call returns. Raises `WrongWords` when it is given up, or something else is waited for."""
        waiting = asyncio.ensure_future(call)
        if self._cancel is not None:
            waiting.cancel()
            raise WrongWords("one thing after the other: Esc gives up what goes on")
        self._cancel = waiting.cancel
        self._told(doing, time.monotonic())
        try:
            await asyncio.wait([waiting])
        finally:
            self._cancel = None
            self._told("", 0.0)
            # Still under way only when the program ends.
            waiting.cancel()
        if waiting.cancelled():
            raise WrongWords(f"{doing} was given up: nothing was made")
        return waiting.result()

    def give_up(self) -> bool:
        """End what goes on; return whether anything did."""
        return self._cancel is not None and self._cancel()
