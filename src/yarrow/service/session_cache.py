"""Bounded cache of the sessions in memory; the least recently used are evicted first."""

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

from yarrow.errors import Code, LimitExceeded
from yarrow.service.loaded_session import LoadedSession

IDLE_SECONDS = 1800.0
"""Idle time in seconds after which the next request evicts an unused session; its file loads it again."""
RECENT_USE_SECONDS = 60.0
"""Seconds for which a session counts as in use after a request, like one that is running or watched."""


class SessionCache:
    """Entries by id, least recently used first."""

    def __init__(self, max_sessions: int) -> None:
        self._max_sessions = max_sessions
        self._entries: dict[str, LoadedSession] = {}
        self._touched_at: dict[str, float] = {}
        self._reserved = 0
        """Slots reserved for sessions that are not in the cache yet."""

    def __iter__(self) -> Iterator[LoadedSession]:
        return iter(tuple(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._entries

    def get(self, session_id: str) -> LoadedSession | None:
        """Return the session and mark it as most recently used; None if it is missing."""
        entry = self._entries.pop(session_id, None)
        if entry is not None:
            self.put(entry)
        return entry

    def is_stale(self, session_id: str) -> bool:
        """Return whether an idle session is here whose file was deleted."""
        entry = self._entries.get(session_id)
        return entry is not None and entry.is_deleted and not entry.agent.busy

    @asynccontextmanager
    async def reserve_slot(self) -> AsyncGenerator[None]:
        """Reserve a slot for one session that is added afterwards, so that none is created without room.

        Raises `LimitExceeded` (TOO_MANY) if there is none.
        """
        leaving = None
        if len(self._entries) + self._reserved >= self._max_sessions:
            leaving = next((one for one in self._entries.values() if self._is_unused(one)), None)
            if leaving is None:
                raise LimitExceeded(
                    f"{self._max_sessions} sessions are in use: wait until some runs end", code=Code.TOO_MANY
                )
            self.remove(leaving.id)
        self._reserved += 1
        try:
            if leaving is not None:
                await leaving.close()
            yield
        finally:
            self._reserved -= 1

    async def evict_idle(self) -> None:
        """Evict sessions that were not used, running or watched for `IDLE_SECONDS`; those without a file stay."""
        long_ago = time.monotonic() - IDLE_SECONDS
        idle: list[LoadedSession] = []
        for entry in self._entries.values():
            if self._touched_at[entry.id] > long_ago:
                break  # all that follow were used later
            if not (entry.agent.busy or entry.bus.subscribers or entry.is_ephemeral):
                idle.append(entry)
        for entry in idle:
            self.remove(entry.id)
        for entry in idle:
            await entry.close()

    def remove(self, session_id: str) -> LoadedSession | None:
        """Remove a session and return it; the caller closes it."""
        self._touched_at.pop(session_id, None)
        return self._entries.pop(session_id, None)

    def clear(self) -> None:
        """Remove all sessions."""
        self._entries.clear()
        self._touched_at.clear()

    def put(self, entry: LoadedSession) -> None:
        """Add a session, for which there is a slot, or mark it as most recently used."""
        self._entries[entry.id] = entry
        self._touched_at[entry.id] = time.monotonic()

    def _is_unused(self, entry: LoadedSession) -> bool:
        rests = time.monotonic() - self._touched_at[entry.id] > RECENT_USE_SECONDS
        return rests and not (entry.agent.busy or entry.bus.subscribers)
