"""Long-running calls of the service: the status line shows them, and Esc cancels them."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from yarrow.client.slash_command import CommandError

T = TypeVar("T")
_NOUNS = {
    "merging": "Merge",
    "rebasing": "Rebase",
    "summarizing": "Summary",
    "importing": "Import",
    "exporting": "Export",
}
"""Names of operations in the message that they were cancelled."""


class LongOperation:
    """Runs one operation at a time."""

    def __init__(self, on_change: Callable[[str, float], None]) -> None:
        """`on_change` receives the name of the operation and its start time, and an empty name when it ends."""
        self._on_change = on_change
        self._cancel: Callable[[], bool] | None = None
        self._doing = ""
        """Name of the current operation, or of the last one."""

    async def run(self, doing: str, call: Awaitable[T]) -> T:
        """Return the result of a call. Raises `CommandError` if it is cancelled or another operation is running."""
        waiting = asyncio.ensure_future(call)
        if self._cancel is not None:
            waiting.cancel()
            raise CommandError(f"Still {self._doing}. Press Esc to cancel it first.")
        self._doing, self._cancel = doing, waiting.cancel
        self._on_change(doing, time.monotonic())
        try:
            await asyncio.wait([waiting])
        finally:
            self._cancel = None
            self._on_change("", 0.0)
            # Still running only if the program ends.
            waiting.cancel()
        if waiting.cancelled():
            raise CommandError(f"{_NOUNS.get(doing, doing)} cancelled; nothing was changed")
        return waiting.result()

    def cancel(self) -> bool:
        """Cancel the operation; return whether there was one."""
        return self._cancel is not None and self._cancel()
