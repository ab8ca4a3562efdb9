"""Sessions in memory, and their lookup: get or create, load on demand, or in memory only."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

from yarrow.agent.agent import Agent
from yarrow.agent.exclusive_task import RunningCount
from yarrow.agent.hooks import HookName
from yarrow.agent.model_context import TokenCalibration, TokenCounter
from yarrow.agent.run_context import Fallback, ModelSetup, RunResources, RunSettings
from yarrow.agent.session_writer import SessionSource, SessionWriter
from yarrow.errors import Code, InvalidArgument, LimitExceeded, NotFound, Precondition, YarrowError
from yarrow.event.bus import Bus
from yarrow.platform.search_path import remember_roots
from yarrow.policy.permission.decision import describe_unknown_tools
from yarrow.provider.base import ProviderInfo
from yarrow.provider.factory import ReadyProvider
from yarrow.service.loaded_session import LoadedSession, SessionCache
from yarrow.service.response_redaction import RedactorCache
from yarrow.service.service_dependencies import Dependencies
from yarrow.service.session_configuration import SessionPlan, make_header
from yarrow.service.tool_context_factory import ToolContexts
from yarrow.session.ids import is_valid_id, new_id
from yarrow.session.memory_log import MemoryLog
from yarrow.session.record import redact_header
from yarrow.session.session_log import SessionLog
from yarrow.session.state import SessionState, fold_records
from yarrow.v1 import agent_pb2 as pb


class Sessions:
    """All sessions in memory. Each is created or loaded once, even for concurrent requests."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._cache = SessionCache(dependencies.settings.service.sessions)
        if dependencies.telemetry is not None:
            dependencies.telemetry.begin(self._cache.__len__)
        self._running = RunningCount()
        self._draining = False
        self._background_writes = 0
        self._writes_done = asyncio.Event()
        self._writes_done.set()
        self._token_calibration = TokenCalibration()
        self.redactors = RedactorCache(dependencies)
        """Redactors for values that must never leave the service."""
        self.tool_contexts = ToolContexts(dependencies, self.redactors)
        """Tool contexts of the sessions."""
        # A lock exists while a task opens its session.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def get_or_create(
        self, session_id: str, plan: SessionPlan
    ) -> tuple[LoadedSession, pb.SessionOrigin.ValueType]:
        """Return the session, loaded if its file exists, otherwise created; and its origin."""
        if session_id and not is_valid_id(session_id):
            raise InvalidArgument("session_id", f"{session_id!r} does not match [A-Za-z0-9_-]{{1,64}}")
        await self._evict(session_id)
        async with self._session_lock(session_id or new_id()):
            if entry := self._cache.get(session_id):
                return entry, pb.SESSION_ORIGIN_ACTIVE
            if session_id and await self._dependencies.manager.find(session_id):
                return await self._load(session_id), pb.SESSION_ORIGIN_LOADED
            return await self._create(session_id or new_id(), plan), pb.SESSION_ORIGIN_CREATED

    async def get_or_load(self, session_id: str, *, exact: bool = True) -> LoadedSession:
        """Return the session from memory or its file; unless `exact`, a unique part of its id or its name is enough.

        Raises `InvalidArgument` and `NotFound` (SESSION_UNKNOWN).
        """
        if not session_id:
            raise InvalidArgument("session_id", "is empty: specify a session")
        await self._evict(session_id)
        if entry := self._cache.get(session_id):
            return entry
        if exact and await self._dependencies.manager.find(session_id) is None:
            raise _unknown_session(session_id)
        session_id = await self._dependencies.manager.resolve(session_id)
        async with self._session_lock(session_id):
            return self._cache.get(session_id) or await self._load(session_id)

    async def lookup(self, session_id: str) -> LoadedSession:
        """Return the session from memory. Raises `NotFound` (SESSION_NOT_ACTIVE or SESSION_UNKNOWN)."""
        await self._evict(session_id)
        if entry := self._cache.get(session_id):
            return entry
        if is_valid_id(session_id) and await self._dependencies.manager.find(session_id):
            raise NotFound(
                f"session {session_id} is saved but not in memory: GetState loads it", code=Code.SESSION_NOT_ACTIVE
            )
        raise _unknown_session(session_id)

    async def prepare_resources(self, entry: LoadedSession) -> RunResources:
        """Return the resources for a run of the session. Raises `ProviderError` if its provider is unavailable."""
        header, settings = entry.state.header, self._dependencies.settings
        built = await self._dependencies.providers.get_for_run(header.provider, header.model)
        entry.provider_reason = built.reason
        setup = self._set_up_model(built, header.tools)
        run = RunSettings(
            provider=built.info.name,
            model=built.info.model,
            system=header.system_prompt,
            thinking=header.thinking,
            tools=setup.tools,
            dry_run=header.dry_run,
            permissions=header.permissions,
            retry=settings.retry,
            max_turns=settings.max_turns,
            max_tokens=setup.max_tokens,
            temperature=setup.temperature,
        )
        entry.resources = RunResources(
            settings=run,
            provider=built.provider,
            info=built.info,
            registry=self._dependencies.registry,
            tool_setup=await self.tool_contexts.prepare(entry),
            hooks=self._dependencies.contributions.hooks,
            consent=self._dependencies.permission_config,
            keys=setup.keys,
            fallbacks=self._list_fallbacks(entry, f"{built.info.name}/{built.info.model}"),
            notices=partial(self.tool_contexts.root_file_notices, entry),
            running=entry.bus.observer.tool_span if entry.bus.observer is not None else None,
        )
        return entry.resources

    def _set_up_model(self, built: ReadyProvider, tools: tuple[str, ...] | None) -> ModelSetup:
        configured = self._dependencies.settings.providers.get(built.info.name)
        return ModelSetup(
            provider=built.provider,
            info=built.info,
            keys=self.redactors.for_keys(),
            tools=self._select_tools(tools, built.info),
            max_tokens=configured.max_tokens if configured else 0,
            temperature=configured.temperature if configured else None,
        )

    def _list_fallbacks(self, entry: LoadedSession, used: str) -> tuple[Fallback, ...]:
        """Return the configured fallbacks for a run with the model `used`; each is built when it is needed."""

        async def set_up(name: str) -> ModelSetup:
            provider, _, model = name.partition("/")
            built = await self._dependencies.providers.get(provider, model)
            return self._set_up_model(built, entry.state.header.tools)

        names = (name for name in self._dependencies.settings.fallback if name != used)
        return tuple(Fallback(name, partial(set_up, name)) for name in names)

    async def provider_info(self, entry: LoadedSession) -> ProviderInfo | None:
        """Return the capabilities of the session's model; None if its provider is currently unavailable."""
        try:
            built = await self._dependencies.providers.get(entry.state.header.provider, entry.state.header.model)
        except YarrowError:
            return None
        entry.provider_reason = built.reason
        return built.info

    async def delete(self, session_id: str) -> None:
        """Delete a session. Raises `NotFound`, and `Precondition` while it runs here (BUSY) or elsewhere (LOCKED)."""
        if await self._dependencies.manager.find(session_id) is None:
            raise _unknown_session(session_id)
        async with self._session_lock(session_id):
            entry = self._cache.get(session_id)
            if entry is not None and entry.agent.busy:
                raise Precondition(f"session {session_id} is running: abort it first", code=Code.BUSY)
            if entry is not None:
                self._cache.remove(session_id)
                await entry.close()
            await self._dependencies.manager.delete(session_id)

    async def _evict(self, session_id: str) -> None:
        """Evict idle sessions, and this one if its file was deleted: its subscribers see it end."""
        await self._cache.evict_idle()
        if self._cache.is_stale(session_id):
            async with self._session_lock(session_id):
                if self._cache.is_stale(session_id) and (entry := self._cache.remove(session_id)) is not None:
                    await entry.close()

    @contextmanager
    def background_write(self) -> Generator[None]:
        """Count a model call outside a run as a run until the context ends. Raises as `check_capacity` does."""
        self.check_capacity()
        self._check_run_limit()
        self._background_writes += 1
        self._writes_done.clear()
        try:
            yield
        finally:
            self._background_writes -= 1
            if not self._background_writes:
                self._writes_done.set()

    def _check_run_limit(self) -> None:
        most = self._dependencies.settings.service.runs
        if self._running.taken + self._background_writes >= most:
            raise LimitExceeded(f"{most} runs are already active: wait until some end", code=Code.TOO_MANY)

    def drain(self) -> None:
        """Refuse new runs from now on."""
        self._draining = True

    def check_capacity(self, entry: LoadedSession | None = None) -> None:
        """Raise unless a run may start now, of the session if it already exists.

        `YarrowError` (DRAINING) if the service is shutting down, `LimitExceeded` (TOO_MANY) if too many runs are
        active.
        """
        if self._draining:
            raise YarrowError("the service is shutting down and accepts no more prompts", code=Code.DRAINING)
        # A busy session is refused for being busy.
        if entry is not None and not entry.agent.busy:
            self._check_run_limit()

    def is_active(self, session_id: str) -> bool:
        """Return whether the session is in memory."""
        return session_id in self._cache

    async def wait_until_idle(self) -> None:
        """Wait until no run is active, and no model call outside one."""
        await asyncio.gather(*(entry.agent.settled() for entry in self._cache), self._writes_done.wait())

    async def close(self) -> None:
        """End every run and close every file."""
        await asyncio.gather(*(entry.close() for entry in self._cache))
        self._cache.clear()
        self._dependencies.manager.close()

    def _select_tools(self, named: tuple[str, ...] | None, info: ProviderInfo) -> tuple[str, ...] | None:
        """Return the tools to offer: the named ones, else all, or for a weak model only the reading ones."""
        if named is not None or not info.reads_only:
            return named
        registry = self._dependencies.registry
        return tuple(name for name in registry.names() if registry.is_read_only(name))

    def _session_lock(self, session_id: str) -> asyncio.Lock:
        return self._locks.setdefault(session_id, asyncio.Lock())

    async def _load(self, session_id: str) -> LoadedSession:
        async with self._cache.reserve_slot():
            log = await self._dependencies.manager.open(session_id)
            state, warnings = await self._read(session_id)
            entry = await self._register(log, state, warnings)
        await entry.notify_hooks(HookName.SESSION_START)
        return entry

    async def _create(self, session_id: str, plan: SessionPlan) -> LoadedSession:
        header, warnings = await make_header(session_id, plan, self._dependencies)
        header = redact_header(header, self.redactors.for_keys())
        async with self._cache.reserve_slot():
            log = MemoryLog(session_id) if plan.ephemeral else await self._dependencies.manager.create(header)
            entry = await self._register(log, SessionState(header), warnings)
        await entry.notify_hooks(HookName.SESSION_START)
        return entry

    async def _read(self, session_id: str) -> tuple[SessionState, tuple[str, ...]]:
        loaded = await self._dependencies.manager.load(session_id)
        state = fold_records(SessionState(loaded.header), (stored.value for stored in loaded.records))
        return state, loaded.report.warnings()

    async def _reread(self, session_id: str) -> SessionState:
        return (await self._read(session_id))[0]

    async def _register(
        self, log: SessionLog | MemoryLog, state: SessionState, warnings: tuple[str, ...]
    ) -> LoadedSession:
        session_id = state.header.id
        remember_roots(Path(state.header.cwd), self._dependencies.settings.workspace.extra)
        bus = Bus(session_id, now=self._dependencies.now)
        source = SessionSource(log, state, partial(self._reread, session_id))
        limits = self._dependencies.settings.service
        session_writer = SessionWriter(
            source, bus, now=self._dependencies.now, pause=self._dependencies.retry_clock, limits=limits
        )
        agent = Agent(session_writer, TokenCounter(self._token_calibration), self._running)
        entry = LoadedSession(
            agent, bus, log, hooks=self._dependencies.contributions.hooks, max_subscribers=limits.subscribers
        )
        entry.on_close = partial(self._dependencies.sandboxes.release, session_id)
        if not state.header.dry_run:
            await asyncio.to_thread(self.tool_contexts.warn_about_sandbox, entry)
        rules = describe_unknown_tools(self._dependencies.permission_config.rules, self._dependencies.registry.names())
        if self._dependencies.telemetry is not None:
            bus.observer = self._dependencies.telemetry.make_observer(session_id, entry.last_model)
        entry.warnings[:0] = (*self._dependencies.contributions.warnings, *warnings, *rules)
        self._cache.put(entry)
        return entry


def _unknown_session(session_id: str) -> NotFound:
    return NotFound(f"no session {session_id!r}: ListSessions lists the saved ones", code=Code.SESSION_UNKNOWN)
