"""What an agent is busy with: one thing at a time, which can be aborted once it is under way."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from yarrow.errors import Code, Precondition


class RunningCount:
    """Those of all sessions of a service: how many are taken is known without asking each."""

    def __init__(self) -> None:
        self.taken = 0


class ExclusiveTask:
    """Taken before anything else is done, so that two callers never work on one session."""

    def __init__(self, session_id: str, among: RunningCount) -> None:
        self._session_id = session_id
        self._among = among
        self._task: asyncio.Task[None] | None = None
        self._abortable = False
        self._abort_early = False
        self.taken = False
        """Whether the agent is busy, or about to be."""

    def acquire(self, advice: str) -> None:
        """Take the seat. Raises `Precondition` (BUSY) with advice."""
        if self.taken:
            raise Precondition(f"session {self._session_id} is running: {advice}", code=Code.BUSY)
        self.taken = True
        self._among.taken += 1
        self._abort_early = False

    def release(self) -> None:
        """Let the next one have it; without effect when it is free."""
        self._among.taken -= self.taken
        self.taken = False

    def start(self, doing: Coroutine[Any, Any, None], name: str) -> None:
        """Run it as a task, which calls `mark_abortable` first and `mark_finishing` before its end."""
        self._task = asyncio.create_task(doing, name=name)

    def mark_abortable(self) -> bool:
        """Say that an abort may strike from now on; return whether one was asked for before."""
        self._abortable = not self._abort_early
        return self._abort_early

    def mark_finishing(self) -> None:
        """Say that an abort strikes no more."""
        self._abortable = False

    def abort(self) -> bool:
        """Cancel the task; return whether that was possible now. If not, it is remembered for `mark_abortable`."""
        if self._task is not None and self._abortable:
            self._abortable = False
            self._task.cancel()
            return True
        # A task that is cancelled before its first step would never tell its end.
        self._abort_early = True
        return False

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        if self._task is not None:
            await asyncio.wait([self._task])
