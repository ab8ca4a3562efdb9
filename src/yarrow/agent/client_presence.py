"""Who is there to answer questions: clients that said so, and for a while one that was cut off during a run."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

MAX_ABSENCE_SECONDS = 30.0
"""For which the last client may be gone from a run before nobody is there: one that was cut off is back in seconds."""
Later = Callable[[float, Callable[[], None]], asyncio.TimerHandle]
"""Calls something after so many seconds."""


class ClientPresence:
    """The clients of one session that can answer. All calls belong to one event loop."""

    def __init__(self, gone: Callable[[], None], later: Later) -> None:
        """`gone` is called when the last one went and did not come back."""
        self._gone = gone
        self._later = later
        self._present = 0
        self._running = False
        self._awaited: asyncio.TimerHandle | None = None

    @property
    def any_connected(self) -> bool:
        """Whether somebody is there, or may be back in a moment."""
        return self._present > 0 or self._awaited is not None

    def begin_run(self) -> None:
        """Wait from now on for one that is cut off."""
        self._running = True

    def end_run(self) -> None:
        """Wait for nobody any more."""
        self._running = False
        self._stop_waiting()

    @contextmanager
    def connected(self) -> Generator[None]:
        """Say that somebody who can answer is there meanwhile."""
        self._stop_waiting()
        self._present += 1
        try:
            yield
        finally:
            self._present -= 1
            # What ends a stream does not tell a client that left from one that was cut off.
            if not self._present and self._running:
                self._awaited = self._later(MAX_ABSENCE_SECONDS, self._give_up)

    def _give_up(self) -> None:
        self._awaited = None
        self._gone()

    def _stop_waiting(self) -> None:
        if self._awaited is not None:
            self._awaited.cancel()
            self._awaited = None
