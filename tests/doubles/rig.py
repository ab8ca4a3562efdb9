"""An agent with a scripted model, small tools and a log in memory, and all that it said and recorded."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from doubles.grammar import check_run, check_sequences
from yarrow.agent.agent import Agent
from yarrow.agent.exclusive_task import RunningCount
from yarrow.agent.hooks import HookRegistry
from yarrow.agent.model_context import TokenCounter
from yarrow.agent.permission_broker import PermissionConfig
from yarrow.agent.retry import Clock
from yarrow.agent.run_context import Fallback, RunResources, RunSettings
from yarrow.agent.session_writer import SessionSource, SessionWriter
from yarrow.config.settings import CompactionSettings, PermissionMode, RetrySettings
from yarrow.errors import StorageError
from yarrow.event import events as ev
from yarrow.event.bus import Bus, Subscription
from yarrow.message import Message, Text
from yarrow.policy.workspace import Workspace
from yarrow.provider.base import ProviderInfo
from yarrow.provider.scripted import ScriptedProvider, make_script
from yarrow.session.ids import parse_seconds
from yarrow.session.record import Header, Record
from yarrow.session.state import SessionState
from yarrow.tool.base import Done, Progress, Result, ToolContext, ToolFailed
from yarrow.tool.registry import ToolRegistry

NOW = "2026-11-28T00:00:00.000Z"
NOW_SECONDS = parse_seconds(NOW)


class Say(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of the test tools."""

    text: str = ""


class EchoTool:
    """Says its text back; read-only, so several run side by side."""

    name = "echo"
    read_only = True
    arguments = Say

    async def run(self, arguments: Say, context: ToolContext) -> AsyncGenerator[Progress | Result]:
        yield Progress(arguments.text + "!")
        await asyncio.sleep(0)
        yield Done(arguments.text)

    async def preview(self, arguments: Say, context: ToolContext) -> Result:
        return Done("would echo")


class ActTool:
    """Writes down that it ran; waits for its gate if the rig has one."""

    name = "act"
    read_only = False
    arguments = Say

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.started = asyncio.Event()
        self.gate: asyncio.Event | None = None

    async def run(self, arguments: Say, context: ToolContext) -> AsyncGenerator[Progress | Result]:
        self.started.set()
        yield Progress("begin")
        if self.gate is not None:
            await self.gate.wait()
        self.ran.append(arguments.text)
        if arguments.text == "boom":
            raise RuntimeError("the tool broke")
        if arguments.text == "fail":
            yield ToolFailed("do something else")
        else:
            yield Done(f"did {arguments.text}")

    async def preview(self, arguments: Say, context: ToolContext) -> Result:
        return Done(f"would do {arguments.text}", diff="-a\n+b\n")


class ListLog:
    """A log that keeps records in a list; each append suspends, as a disk does."""

    def __init__(self, yields: int = 1) -> None:
        self.records: list[Record] = []
        self.held = False
        self.full_after: int | None = None
        self.full_at_release = False
        self._yields = yields

    @contextlib.asynccontextmanager
    async def lock(self, *first: Record) -> AsyncGenerator[bool]:
        assert not self.held
        self.held = True
        try:
            if first:
                await self.append(*first)
            yield False
        finally:
            self.held = False
            if self.full_at_release:
                raise StorageError("the disk is full at the end")

    async def append(self, *records: Record) -> None:
        assert self.held, "appended without the lock"
        for _ in range(self._yields):
            await asyncio.sleep(0)
        if self.full_after is not None and len(self.records) + len(records) > self.full_after:
            raise StorageError("the disk is full")
        self.records += records

    async def flush(self) -> None:
        await asyncio.sleep(0)


class Rig:
    """One agent to be played with."""

    def __init__(
        self,
        turns: Sequence[Sequence[dict[str, Any]]],
        *,
        log: ListLog | None = None,
        compaction: CompactionSettings | None = None,
        session_provider: str = "",
        **settings: Any,
    ) -> None:
        self.log = log or ListLog()
        self.act = ActTool()
        self.bus = Bus("session", now=lambda: 0.0)
        self.provider = ScriptedProvider("scripted", "m", script=make_script(turns))
        settings.setdefault("permissions", PermissionMode.AUTO)
        settings.setdefault("retry", RetrySettings(attempts=0))
        self.settings = RunSettings(provider="scripted", model="m", system="be good", **settings)
        self.header = Header(
            id="session",
            cwd="/",
            created_at=NOW,
            updated_at=NOW,
            provider=session_provider,
            compaction=compaction or CompactionSettings(),
            dry_run=self.settings.dry_run,
            permissions=self.settings.permissions,
        )
        source = SessionSource(self.log, SessionState(self.header), self._reload)
        self.waits: list[float] = []
        """Seconds that were waited before a call was tried again."""
        self.wait_gate: asyncio.Event | None = None
        pause = Clock(self._sleep, chance=lambda: 0.0)
        self.agent = Agent(
            SessionWriter(source, self.bus, now=lambda: NOW_SECONDS, pause=pause), TokenCounter(), RunningCount()
        )
        self.watch = self.bus.subscribe()
        self.seen: list[ev.Event] = []
        self.has_tool_call = True
        self.reads_only = False
        self.window = 0
        self.hooks = HookRegistry()
        self.fallbacks: tuple[Fallback, ...] = ()
        self.consent = PermissionConfig()

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)
        if self.wait_gate is not None:
            await self.wait_gate.wait()

    async def _reload(self) -> SessionState:
        raise AssertionError("nobody else writes")

    @property
    def resources(self) -> RunResources:
        return RunResources(
            settings=self.settings,
            provider=self.provider,
            info=ProviderInfo(
                "scripted",
                "m",
                context_window=self.window,
                has_tool_call=self.has_tool_call,
                reads_only=self.reads_only,
            ),
            registry=ToolRegistry([EchoTool(), self.act]),
            context=ToolContext(cwd=Path("/"), workspace=Workspace((Path("/"),))),
            hooks=self.hooks,
            fallbacks=self.fallbacks,
            consent=self.consent,
        )

    async def start(self, text: str = "go") -> str:
        return await self.agent.prompt((Text(text),), self.resources)

    async def run(self, text: str = "go") -> list[ev.Body]:
        """Prompt, wait for the end and return the run's bodies, checked against the grammar."""
        await self.start(text)
        return await self.finish()

    async def finish(self) -> list[ev.Body]:
        await asyncio.wait_for(self.agent.settled(), 10)
        events = await drain(self.watch)
        self.seen += events
        check_sequences(self.seen)
        bodies = [event.body for event in events]
        check_run(bodies)
        assert not self.log.held
        self._check_recorded(bodies)
        return bodies

    def _check_recorded(self, bodies: list[ev.Body]) -> None:
        """Data announced as complete by an event is on disk."""
        recorded = {message.id for message in self.messages}
        for body in bodies:
            if isinstance(body, ev.ToolOutput | ev.MessageEnd | ev.AgentStart) and body.message_id:
                assert body.message_id in recorded

    @property
    def messages(self) -> list[Message]:
        return [record for record in self.log.records if isinstance(record, Message)]


async def drain(subscription: Subscription) -> list[ev.Event]:
    """Everything in the buffer now."""
    events: list[ev.Event] = []
    while subscription.buffer:
        events += await subscription.take(1000)
    return events


def call(name: str, text: str = "x", **more: Any) -> dict[str, Any]:
    return {"call": {"name": name, "arguments": {"text": text}, **more}}
