"""The sessions in memory: a bounded number, of which the longest unused leave first."""

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

from yarrow.errors import Code, LimitExceeded
from yarrow.service.loaded_session import LoadedSession

IDLE_SECONDS = 1800.0
"""After which a session that is not in use leaves memory at the next request; its file loads it again."""
RECENT_USE_SECONDS = 60.0
"""A session that a request touched since then is in use, as is one that runs or that somebody watches."""


class SessionCache:
    """Entries by id, in the order in which they were last touched."""

    def __init__(self, max_sessions: int) -> None:
        self._max_sessions = max_sessions
        self._entries: dict[str, LoadedSession] = {}
        self._touched_at: dict[str, float] = {}
        self._reserved = 0
        """Sessions that there is room for and that are not here yet."""

    def __iter__(self) -> Iterator[LoadedSession]:
        return iter(tuple(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._entries

    def get(self, session_id: str) -> LoadedSession | None:
        """Return the session, now the last touched; None when it is not there."""
        entry = self._entries.pop(session_id, None)
        if entry is not None:
            self.put(entry)
        return entry

    def is_stale(self, session_id: str) -> bool:
        """Whether a session is here that does nothing and whose file somebody took away."""
        entry = self._entries.get(session_id)
        return entry is not None and entry.is_deleted and not entry.agent.busy

    @asynccontextmanager
    async def reserve_slot(self) -> AsyncGenerator[None]:
        """Keep room for one session that is then put in; so none is made that there is no room for.

        Raises `LimitExceeded` (TOO_MANY) when there is none.
        """
        leaving = None
        if len(self._entries) + self._reserved >= self._max_sessions:
            leaving = next((one for one in self._entries.values() if self._is_unused(one)), None)
            if leaving is None:
                raise LimitExceeded(f"{self._max_sessions} sessions are in use: let some runs end", code=Code.TOO_MANY)
            self.remove(leaving.id)
        self._reserved += 1
        try:
            if leaving is not None:
                await leaving.close()
            yield
        finally:
            self._reserved -= 1

    async def evict_idle(self) -> None:
        """Let the sessions go that nobody touched, ran or watched for `IDLE_SECONDS`; those without a file stay."""
        long_ago = time.monotonic() - IDLE_SECONDS
        idle: list[LoadedSession] = []
        for entry in self._entries.values():
            if self._touched_at[entry.id] > long_ago:
                break  # all that follow were touched later
            if not (entry.agent.busy or entry.bus.subscribers or entry.is_ephemeral):
                idle.append(entry)
        for entry in idle:
            self.remove(entry.id)
        for entry in idle:
            await entry.close()

    def remove(self, session_id: str) -> LoadedSession | None:
        """Let a session go and return it; its owner closes it."""
        self._touched_at.pop(session_id, None)
        return self._entries.pop(session_id, None)

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()
        self._touched_at.clear()

    def put(self, entry: LoadedSession) -> None:
        """Take a session in, for which there is room, or put it last."""
        self._entries[entry.id] = entry
        self._touched_at[entry.id] = time.monotonic()

    def _is_unused(self, entry: LoadedSession) -> bool:
        rests = time.monotonic() - self._touched_at[entry.id] > RECENT_USE_SECONDS
        return rests and not (entry.agent.busy or entry.bus.subscribers)
