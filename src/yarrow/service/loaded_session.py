"""Sessions in memory: the agent, bus and events of each, and the cache that limits their number."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from yarrow.agent.agent import Agent
from yarrow.agent.hook_payloads import SessionPayload
from yarrow.agent.hooks import HookContext, HookName, HookRegistry
from yarrow.agent.run_context import RunResources
from yarrow.errors import Code, LimitExceeded, Precondition, StorageError
from yarrow.event.bus import BUFFER_EVENTS, Bus, Subscription
from yarrow.event.events import Event, Notice
from yarrow.service.translation import to_event
from yarrow.session.memory_log import MemoryLog
from yarrow.session.session_log import SessionLog
from yarrow.session.state import SessionState
from yarrow.v1 import agent_pb2 as pb

_logger = logging.getLogger("yarrow.service")
MAX_WARNINGS = 100
"""Maximum warnings kept per session; later ones are dropped."""
IDLE_SECONDS = 1800.0
"""Idle time in seconds after which the next request evicts an unused session; its file loads it again."""
RECENT_USE_SECONDS = 60.0
"""Seconds for which a session counts as in use after a request, like one that is running or watched."""


class LoadedSession:
    """One session in memory."""

    def __init__(
        self, agent: Agent, bus: Bus, log: SessionLog | MemoryLog, *, hooks: HookRegistry, max_subscribers: int
    ) -> None:
        self.agent = agent
        self.bus = bus
        self._log = log
        self._hooks = hooks
        self._max_subscribers = max_subscribers
        self.warnings: list[str] = []
        """Warnings for the user about how the session was created or loaded."""
        self.has_reported_sandbox = False
        """The warnings about sandboxes have been added."""
        self.has_reported_root_files = False
        """A notice has listed the root-only files that commands can read."""
        self.provider_reason = ""
        """Reason for choosing the provider; empty if it was named, or not needed yet."""
        self.on_close: Callable[[], object] = bool
        """Releases resources that the session's tools hold outside it; called in a thread when the session closes."""
        self.resources: RunResources | None = None
        """Resources of the last run."""
        self._translations: dict[int, pb.AgentEvent] = {}
        self._translation_order: deque[int] = deque()

    @property
    def id(self) -> str:
        """The session's id."""
        return self.bus.session_id

    @property
    def state(self) -> SessionState:
        """The current state of the session."""
        return self.agent.session

    @property
    def cwd(self) -> Path:
        """The working directory; it existed when the session was created."""
        return Path(self.state.header.cwd)

    def last_model(self) -> tuple[str, str]:
        """Return the ids of the last run's provider and model; the session's own before its first run."""
        used = self.resources.settings if self.resources is not None else self.state.header
        return used.provider, used.model

    @property
    def is_ephemeral(self) -> bool:
        """The session has no file."""
        return isinstance(self._log, MemoryLog)

    @property
    def is_deleted(self) -> bool:
        """The session's file was deleted."""
        return isinstance(self._log, SessionLog) and not self._log.path.exists()

    async def close(self) -> None:
        """End the run if there is one, and retry writes that the disk refused earlier."""
        await self.agent.close()
        await self.notify_hooks(HookName.SESSION_END)
        await asyncio.to_thread(self.on_close)
        try:
            await self._log.close()
        except (StorageError, Precondition) as error:
            _logger.warning("session %s: %s", self.id, error.message)

    async def notify_hooks(self, name: HookName) -> None:
        """Notify the hooks that the session starts, or ends."""
        if name in self._hooks:
            header = self.state.header
            payload = SessionPayload(header.provider, header.model, len(self.state.messages))
            about = HookContext(self.id, header.cwd, dry_run=header.dry_run)
            await self._hooks.run(name, payload, about=about, notify=self._add_warning)

    def _add_warning(self, notice: Notice) -> None:
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(notice.text)

    def reject_duplicate(self, message_id: str) -> None:
        """Raise `Precondition` (ALREADY_ACCEPTED) if a message with that id was already recorded; an empty id is
        ignored.
        """
        if message_id and any(message.id == message_id for message in reversed(self.state.messages)):
            raise Precondition(f"the prompt {message_id} was already accepted", code=Code.ALREADY_ACCEPTED)

    def subscribe(self, after: int | None = None) -> Subscription:
        """Return a subscription as `Bus.subscribe` does. Raises `LimitExceeded` (TOO_MANY)."""
        if self.bus.subscribers >= self._max_subscribers:
            raise LimitExceeded(
                f"{self._max_subscribers} streams already follow session {self.id}: close some", code=Code.TOO_MANY
            )
        return self.bus.subscribe(after)

    def release(self, subscription: Subscription) -> None:
        """End a subscription; the last one releases the cached translations."""
        subscription.close()
        if not self.bus.subscribers:
            self._translations.clear()
            self._translation_order.clear()

    def translate(self, event: Event) -> pb.AgentEvent:
        """Return the event as a protobuf message; translated once for all subscribers.

        The cache keeps as many as a subscriber may be behind; older ones are translated again if needed.
        """
        if not event.sequence:
            return to_event(event)
        known = self._translations.get(event.sequence)
        if known is None:
            known = self._translations[event.sequence] = to_event(event)
            self._translation_order.append(event.sequence)
            if len(self._translation_order) > BUFFER_EVENTS:
                self._translations.pop(self._translation_order.popleft(), None)
        return known


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
