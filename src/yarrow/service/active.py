"""The sessions in memory: a bounded number, of which the longest unused leave first."""

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

from yarrow.errors import Code, LimitExceeded
from yarrow.service.entry import Entry

IDLE_SECONDS = 1800.0
"""After which a session that is not in use leaves memory at the next request; its file loads it again."""
UNUSED_SECONDS = 60.0
"""A session that a request touched since then is in use, as is one that runs or that somebody watches."""


class Active:
    """Entries by id, in the order in which they were last touched."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[str, Entry] = {}
        self._touched: dict[str, float] = {}
        self._coming = 0
        """Sessions that there is room for and that are not here yet."""

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._entries

    def get(self, session_id: str) -> Entry | None:
        """Return the session, now the last touched; None when it is not there."""
        entry = self._entries.pop(session_id, None)
        if entry is not None:
            self.put(entry)
        return entry

    def is_deleted(self, session_id: str) -> bool:
        """Whether a session is here that does nothing and whose file somebody took away."""
        entry = self._entries.get(session_id)
        return entry is not None and entry.deleted and not entry.agent.busy

    @asynccontextmanager
    async def room(self) -> AsyncGenerator[None]:
        """Keep room for one session that is then put in; so none is made that there is no room for.

        Raises `LimitExceeded` (TOO_MANY) when there is none.
        """
        leaving = None
        if len(self._entries) + self._coming >= self._most:
            leaving = next((one for one in self._entries.values() if self._unused(one)), None)
            if leaving is None:
                raise LimitExceeded(f"{self._most} sessions are in use: let some runs end", code=Code.TOO_MANY)
            self.remove(leaving.id)
        self._coming += 1
        try:
            if leaving is not None:
                await leaving.close()
            yield
        finally:
            self._coming -= 1

    async def let_idle_go(self) -> None:
        """Let the sessions go that nobody touched, ran or watched for `IDLE_SECONDS`; those without a file stay."""
        long_ago = time.monotonic() - IDLE_SECONDS
        idle: list[Entry] = []
        for entry in self._entries.values():
            if self._touched[entry.id] > long_ago:
                break  # all that follow were touched later
            if not (entry.agent.busy or entry.bus.subscribers or entry.ephemeral):
                idle.append(entry)
        for entry in idle:
            self.remove(entry.id)
        for entry in idle:
            await entry.close()

    def remove(self, session_id: str) -> Entry | None:
        """Let a session go and return it; its owner closes it."""
        self._touched.pop(session_id, None)
        return self._entries.pop(session_id, None)

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()
        self._touched.clear()

    def put(self, entry: Entry) -> None:
        """Take a session in, for which there is room, or put it last."""
        self._entries[entry.id] = entry
        self._touched[entry.id] = time.monotonic()

    def _unused(self, entry: Entry) -> bool:
        rests = time.monotonic() - self._touched[entry.id] > UNUSED_SECONDS
        return rests and not (entry.agent.busy or entry.bus.subscribers)
