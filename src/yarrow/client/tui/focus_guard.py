"""Guard of the keyboard focus: a question takes it only after a pause in typing, and never before it was readable."""

import time
from collections.abc import Callable

QUIET_SECONDS = 1.0
"""Seconds without a key, and seconds on the screen, before a question may take the focus."""


class FocusGuard:
    """Knows when the last key came and since when the question is on the screen."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._key_at = now()
        self._pause = 0.0
        """Seconds between the last key and the one before it."""
        self._drawn_at: float | None = None

    def note_key(self) -> None:
        """Note a key, before it is handled."""
        now = self._now()
        self._pause, self._key_at = now - self._key_at, now

    def note_shown(self) -> None:
        """Note that the question is on the screen."""
        if self._drawn_at is None:
            self._drawn_at = self._now()

    def note_hidden(self) -> None:
        """Note that the question is not on the screen, or another one is."""
        self._drawn_at = None

    @property
    def allows_focus(self) -> bool:
        """Whether the key that is being handled may move the focus to the question."""
        seen = 0.0 if self._drawn_at is None else self._key_at - self._drawn_at
        return min(self._pause, seen) >= QUIET_SECONDS
