"""The log of a session that is not kept: it behaves like one on the disk and writes nothing."""

import contextlib
from collections.abc import AsyncGenerator

from yarrow.errors import Code, Precondition
from yarrow.session.record import Record


class MemoryLog:
    """A log without a file, for `--no-session`; the records live in the agent's own state."""

    def __init__(self, session_id: str) -> None:
        self._id = session_id
        self._is_held = False

    @contextlib.asynccontextmanager
    async def lock(self) -> AsyncGenerator[bool]:
        """Hold the right to append; nobody else can have appended, so the value is False."""
        grown = await self.acquire()
        try:
            yield grown
        finally:
            await self.release()

    async def acquire(self) -> bool:
        """Take the right to append or raise `Precondition` (LOCKED); return False."""
        if self._is_held:
            raise Precondition(f"session {self._id} is being written by this process", code=Code.LOCKED)
        self._is_held = True
        return False

    async def release(self) -> None:
        """Give the right to append back."""
        self._is_held = False

    async def append(self, *records: Record) -> None:
        """Accept records, and forget them; needs the lock."""
        del records
        await self.flush()

    async def flush(self) -> None:
        """Do nothing, for there is nothing to force; needs the lock all the same."""
        if not self._is_held:
            raise Precondition(f"session {self._id} is not locked for writing", code=Code.NOT_RUNNING)

    async def close(self) -> None:
        """Give the right to append back."""
        self._is_held = False
