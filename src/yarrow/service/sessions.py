"""The sessions in memory and how a request finds its own: get-or-create, load-on-demand, or in memory alone."""

import asyncio
import os
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

from msgspec.structs import replace

from yarrow.agent.agent import Agent
from yarrow.agent.context import TokenCalibration, TokenCounter
from yarrow.agent.exclusive_task import RunningCount
from yarrow.agent.hooks import HookName
from yarrow.agent.run_context import RunResources, RunSettings
from yarrow.agent.session_writer import SessionSource, SessionWriter
from yarrow.errors import Code, ConfigError, InvalidArgument, LimitExceeded, NotFound, Precondition, YarrowError
from yarrow.event.bus import Bus
from yarrow.event.events import Notice
from yarrow.platform.search_path import remember_roots
from yarrow.policy.environment import ProviderKeys
from yarrow.policy.permission.paths import denied_places
from yarrow.policy.permission.unknown import unknown_tools
from yarrow.policy.sandbox.session_tmp import SessionTmp
from yarrow.policy.workspace import Workspace
from yarrow.prompt.skills import skill_directories
from yarrow.provider.base import ProviderInfo
from yarrow.service.active import Active
from yarrow.service.discreet import Redactors, sifting
from yarrow.service.entry import Entry
from yarrow.service.making import SessionPlan, make_header
from yarrow.service.parts import Parts
from yarrow.session.ids import new_id, valid_id
from yarrow.session.memory_log import MemoryLog
from yarrow.session.state import SessionState, fold
from yarrow.session.store import SessionLog
from yarrow.tool.base import ToolContext
from yarrow.v1 import agent_pb2 as pb


class Sessions:
    """All sessions in memory. Each is made or loaded once, however many ask at the same time."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._active = Active(parts.settings.service.sessions)
        if parts.watch is not None:
            parts.watch.begin(self._active.__len__)
        self._seats = RunningCount()
        self._draining = False
        self._written = 0
        self._all_written = asyncio.Event()
        self._all_written.set()
        self._ratios = TokenCalibration()
        self.redactors = Redactors(parts)
        """What takes out what is told to nobody."""
        # A lock lives as long as somebody opens the session it is for.
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def get_or_create(self, session_id: str, plan: SessionPlan) -> tuple[Entry, pb.SessionOrigin.ValueType]:
        """Return the session, loaded if its file exists, else made; and how it was come by."""
        if session_id and not valid_id(session_id):
            raise InvalidArgument("session_id", f"{session_id!r} does not match [A-Za-z0-9_-]{{1,64}}")
        await self._let_go(session_id)
        async with self._lock(session_id or new_id()):
            if entry := self._active.get(session_id):
                return entry, pb.SESSION_ORIGIN_ACTIVE
            if session_id and await self._parts.manager.find(session_id):
                return await self._load(session_id), pb.SESSION_ORIGIN_LOADED
            return await self._create(session_id or new_id(), plan), pb.SESSION_ORIGIN_CREATED

    async def get_or_load(self, session_id: str, *, exact: bool = True) -> Entry:
        """Return the session from memory or from its file; unless `exact`, a unique part of its id or its name will do.

        Raises `InvalidArgument` and `NotFound` (SESSION_UNKNOWN).
        """
        if not session_id:
            raise InvalidArgument("session_id", "is empty: name the session")
        await self._let_go(session_id)
        if entry := self._active.get(session_id):
            return entry
        if exact and await self._parts.manager.find(session_id) is None:
            raise _unknown(session_id)
        session_id = await self._parts.manager.resolve(session_id)
        async with self._lock(session_id):
            return self._active.get(session_id) or await self._load(session_id)

    async def lookup(self, session_id: str) -> Entry:
        """Return the session from memory. Raises `NotFound` (SESSION_NOT_ACTIVE or SESSION_UNKNOWN)."""
        await self._let_go(session_id)
        if entry := self._active.get(session_id):
            return entry
        if valid_id(session_id) and await self._parts.manager.find(session_id):
            raise NotFound(
                f"session {session_id} is saved but not in memory: GetState loads it", code=Code.SESSION_NOT_ACTIVE
            )
        raise _unknown(session_id)

    async def equip(self, entry: Entry) -> RunResources:
        """Return what a run of the session works with. Raises `ProviderError` when its provider cannot be had."""
        header, settings = entry.state.header, self._parts.settings
        built = await self._parts.providers.get(header.provider, header.model)
        entry.reason = built.reason
        configured = settings.providers.get(built.info.name)
        run = RunSettings(
            provider=built.info.name,
            model=built.info.model,
            system=header.system_prompt,
            thinking=header.thinking,
            tools=self._offered(header.tools, built.info),
            dry_run=header.dry_run,
            permissions=header.permissions,
            retry=settings.retry,
            max_turns=settings.max_turns,
            max_tokens=configured.max_tokens if configured else 0,
            temperature=configured.temperature if configured else None,
        )
        redactor = self.redactors.secrets()
        context = sifting(await self.context(entry), redactor)
        entry.equipment = RunResources(
            settings=run,
            provider=built.provider,
            info=built.info,
            registry=self._parts.registry,
            context=context,
            hooks=self._parts.added.hooks,
            consent=self._parts.consent,
            redactor=redactor,
            keys=self.redactors.keys(),
            contained=context.sandbox is not None,
            notices=partial(self._notices, entry),
            running=entry.bus.tap.running if entry.bus.tap is not None else None,
        )
        return entry.equipment

    async def info(self, entry: Entry) -> ProviderInfo | None:
        """Return what the session's model can do; None when its provider cannot be had now."""
        try:
            built = await self._parts.providers.get(entry.state.header.provider, entry.state.header.model)
        except YarrowError:
            return None
        entry.reason = built.reason
        return built.info

    async def delete(self, session_id: str) -> None:
        """Delete a session. Raises `NotFound`, and `Precondition` while it runs here (BUSY) or elsewhere (LOCKED)."""
        if await self._parts.manager.find(session_id) is None:
            raise _unknown(session_id)
        async with self._lock(session_id):
            entry = self._active.get(session_id)
            if entry is not None and entry.agent.busy:
                raise Precondition(f"session {session_id} is running: abort it first", code=Code.BUSY)
            if entry is not None:
                self._active.remove(session_id)
                await entry.close()
            await self._parts.manager.delete(session_id)

    async def _let_go(self, session_id: str) -> None:
        """Let idle sessions go, and this one where its file was deleted: whoever watches it hears its end."""
        await self._active.let_idle_go()
        if self._active.is_deleted(session_id):
            async with self._lock(session_id):
                if self._active.is_deleted(session_id) and (entry := self._active.remove(session_id)) is not None:
                    await entry.close()

    @contextmanager
    def writing(self) -> Generator[None]:
        """Count what a model writes outside of a run as one meanwhile. Raises as `admit` does."""
        self.admit()
        self._make_sure_of_room()
        self._written += 1
        self._all_written.clear()
        try:
            yield
        finally:
            self._written -= 1
            if not self._written:
                self._all_written.set()

    def _make_sure_of_room(self) -> None:
        most = self._parts.settings.service.runs
        if self._seats.taken + self._written >= most:
            raise LimitExceeded(f"{most} runs go on already: let some end", code=Code.TOO_MANY)

    def drain(self) -> None:
        """Let nothing begin any more."""
        self._draining = True

    def admit(self, entry: Entry | None = None) -> None:
        """Raise unless a run, of the session if there is one yet, may begin now.

        `YarrowError` (DRAINING) when the service is ending, `LimitExceeded` (TOO_MANY) when too many runs go on.
        """
        if self._draining:
            raise YarrowError("the service is ending and takes no more prompts", code=Code.DRAINING)
        # A session that is busy itself is refused for that.
        if entry is not None and not entry.agent.busy:
            self._make_sure_of_room()

    def active(self, session_id: str) -> bool:
        """Return whether the session is in memory."""
        return session_id in self._active

    async def settled(self) -> None:
        """Wait until no run is going on, and nothing is written outside of one."""
        await asyncio.gather(*(entry.agent.settled() for entry in self._active), self._all_written.wait())

    async def close(self) -> None:
        """End every run and let go of every file."""
        await asyncio.gather(*(entry.close() for entry in self._active))
        self._active.clear()
        self._parts.manager.close()

    def _offered(self, named: tuple[str, ...] | None, info: ProviderInfo) -> tuple[str, ...] | None:
        """Return the tools to offer: those that were named, else all, or to a weak model those that only read."""
        if named is not None or not info.reads_only:
            return named
        registry = self._parts.registry
        return tuple(name for name in registry.names() if registry.read_only(name))

    def _lock(self, session_id: str) -> asyncio.Lock:
        return self._opening.setdefault(session_id, asyncio.Lock())

    async def context(self, entry: Entry) -> ToolContext:
        """Return where the session's tools work."""
        # In one go: a thread that is handed to costs more than what it asks the disk.
        return await asyncio.to_thread(self._context, entry)

    def _tell_of_boxes(self, entry: Entry) -> None:
        """Warn of what there is to say of sandboxes, once, and not in a dry run: looking starts a process."""
        if not entry.knows_of_boxes:
            entry.knows_of_boxes = True
            boxes = self._parts.boxes
            extra = self._parts.settings.workspace.extra
            roots = (entry.cwd, *(Path(name).expanduser().resolve() for name in extra))
            entry.warnings += filter(
                None, (boxes.warning(roots), boxes.around(entry.cwd), boxes.identity(entry.cwd), boxes.recovered())
            )

    def _notices(self, entry: Entry) -> tuple[Notice, ...]:
        """Return what there is to say of files for root only, once for each session."""
        text = "" if entry.knows_of_root_files else self._parts.boxes.unmasked(entry.id)
        if not text:
            return ()
        entry.knows_of_root_files = True
        return (Notice("ROOT_FILES", text),)

    def _context(self, entry: Entry) -> ToolContext:
        if os.path.realpath(entry.cwd) != str(entry.cwd):
            raise ConfigError(
                f"{entry.cwd} is not the directory any more that this session was made in: a link stands in its place"
            )
        settings = self._parts.settings.workspace
        skills = skill_directories(self._parts.places(entry.cwd))
        workspace = Workspace.make(entry.cwd, settings.extra, (*settings.read, *map(str, skills)))
        parts = self._parts
        workspace = replace(
            workspace,
            private=parts.private,
            kept=parts.kept(entry.cwd),
            obeyed=parts.obeyed,
            secrets=parts.secret_files(),
        )
        if entry.state.header.dry_run:
            box = self._parts.boxes.planned(workspace)
        else:
            self._tell_of_boxes(entry)
            denied = denied_places(self._parts.consent.rules, entry.cwd)
            box = self._parts.boxes.box(entry.id, workspace, denied)
        if box is not None:
            workspace = replace(workspace, tmp=SessionTmp(box))
        keys = ProviderKeys(*map(frozenset, (parts.key_names(), parts.keys(), parts.withheld())))
        return ToolContext(cwd=entry.cwd, workspace=workspace, bash=parts.settings.bash, sandbox=box, keys=keys)

    async def _load(self, session_id: str) -> Entry:
        async with self._active.room():
            log = await self._parts.manager.open(session_id)
            state, warnings = await self._read(session_id)
            entry = await self._enter(log, state, warnings)
        await entry.tell(HookName.SESSION_START)
        return entry

    async def _create(self, session_id: str, plan: SessionPlan) -> Entry:
        header, warnings = await make_header(session_id, plan, self._parts)
        header = self.redactors.keys().header(header)
        async with self._active.room():
            log = MemoryLog(session_id) if plan.ephemeral else await self._parts.manager.create(header)
            entry = await self._enter(log, SessionState(header), warnings)
        await entry.tell(HookName.SESSION_START)
        return entry

    async def _read(self, session_id: str) -> tuple[SessionState, tuple[str, ...]]:
        loaded = await self._parts.manager.load(session_id)
        state = fold(SessionState(loaded.header), (stored.value for stored in loaded.records))
        return state, loaded.report.warnings()

    async def _reread(self, session_id: str) -> SessionState:
        return (await self._read(session_id))[0]

    async def _enter(self, log: SessionLog | MemoryLog, state: SessionState, warnings: tuple[str, ...]) -> Entry:
        session_id = state.header.id
        remember_roots(Path(state.header.cwd), self._parts.settings.workspace.extra)
        bus = Bus(session_id, now=self._parts.now)
        source = SessionSource(log, state, partial(self._reread, session_id))
        limits = self._parts.settings.service
        desk = SessionWriter(source, bus, now=self._parts.now, pause=self._parts.pause, limits=limits)
        agent = Agent(desk, TokenCounter(self._ratios), self._seats)
        entry = Entry(agent, bus, log, hooks=self._parts.added.hooks, most=limits.subscribers)
        entry.give_back = partial(self._parts.boxes.release, session_id)
        if not state.header.dry_run:
            await asyncio.to_thread(self._tell_of_boxes, entry)
        rules = unknown_tools(self._parts.consent.rules, self._parts.registry.names())
        if self._parts.watch is not None:
            bus.tap = self._parts.watch.tap(session_id, entry.model)
        entry.warnings[:0] = (*self._parts.added.warnings, *warnings, *rules)
        self._active.put(entry)
        return entry


def _unknown(session_id: str) -> NotFound:
    return NotFound(f"no session {session_id!r}: list the saved ones", code=Code.SESSION_UNKNOWN)
