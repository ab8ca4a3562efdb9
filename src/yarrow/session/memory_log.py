"""In-memory session log: behaves like the log on disk, but writes nothing."""

import contextlib
from collections.abc import AsyncGenerator

from yarrow.errors import Code, Precondition
from yarrow.session.record import Record


class MemoryLog:
    """A log without a file, for `--no-session`; the records only exist in the agent's state."""

    def __init__(self, session_id: str) -> None:
        self._id = session_id
        self._is_held = False

    @contextlib.asynccontextmanager
    async def lock(self, *first: Record) -> AsyncGenerator[bool]:
        """Hold the write lock; the value is False because nothing else can have appended."""
        del first
        grown = await self.acquire()
        try:
            yield grown
        finally:
            await self.release()

    async def acquire(self) -> bool:
        """Acquire the write lock; return False. Raises `Precondition` (LOCKED) if it is held."""
        if self._is_held:
            raise Precondition(f"session {self._id} is locked by this process", code=Code.LOCKED)
        self._is_held = True
        return False

    async def release(self) -> None:
        """Release the write lock."""
        self._is_held = False

    async def append(self, *records: Record) -> None:
        """Accept and discard records; requires the lock."""
        del records
        await self.flush()

    async def flush(self) -> None:
        """Do nothing; requires the lock."""
        if not self._is_held:
            raise Precondition(f"session {self._id} is not locked for writing", code=Code.NOT_RUNNING)

    async def close(self) -> None:
        """Release the write lock."""
        self._is_held = False
