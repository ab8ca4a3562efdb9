"""One session's agent: its state, the one run it may have, and the texts that wait for that run."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Literal

from msgspec import Struct

from yarrow.agent.ending import End, by_bug, by_error
from yarrow.agent.hooks import About, Hooks
from yarrow.agent.loop import Loop
from yarrow.agent.points import Points
from yarrow.agent.ports import Equipment, Ports
from yarrow.agent.queues import Queues, Waiting
from yarrow.agent.settle import to_the_end
from yarrow.agent.states import StateMachine
from yarrow.errors import Code, Precondition, StorageError, YarrowError
from yarrow.event.bus import Bus
from yarrow.event.events import AgentEnd, AgentStart, AgentState, Body, EndReason, Notice, QueuedText
from yarrow.message import Block, Message, Role, Text
from yarrow.session.ids import new_id, timestamp
from yarrow.session.record import Change, Queued, Record, Undelivered
from yarrow.session.state import SessionState, fold
from yarrow.session.store import Log

_logger = logging.getLogger("yarrow.agent")


class Source(Struct, frozen=True):
    """Where an agent's session comes from and goes to."""

    log: Log
    state: SessionState
    reload: Callable[[], Awaitable[SessionState]]
    """Reads the session anew, after another process wrote to it."""


class Agent:
    """The only writer of its session. All calls belong to one event loop."""

    def __init__(self, source: Source, bus: Bus, *, now: Callable[[], float] = time.time) -> None:
        self.session = source.state
        self._source = source
        self._log = source.log
        self._lock = AsyncExitStack()
        self._bus = bus
        self._now = now
        self._machine = StateMachine(bus.publish)
        self._queues = Queues()
        self._run: asyncio.Task[None] | None = None
        self._busy = False
        self._abortable = False
        self._abort_early = False
        self.run_id = ""
        """Of the run that is going on; empty when there is none."""
        self._points = self._points_of(Hooks())

    @property
    def state(self) -> AgentState:
        """What the agent is doing."""
        return self._machine.current

    @property
    def busy(self) -> bool:
        """Whether a run is going on or being accepted."""
        return self._busy

    @property
    def waiting(self) -> tuple[tuple[QueuedText, ...], tuple[QueuedText, ...]]:
        """The steers and the follow-ups that wait."""
        shown = self._queues.shown()
        return shown.steering, shown.follow_ups

    async def prompt(self, content: tuple[Block, ...], equipment: Equipment, *, typed: str = "") -> str:
        """Accept a prompt and start its run; return the run's id once the prompt is on disk.

        `typed` is what a person wrote, when that was a command of which `content` was made.
        Raises `Precondition` (BUSY, LOCKED) and `StorageError`; then nothing was accepted.
        """
        if self._busy:
            raise Precondition(
                f"session {self._bus.session_id} is running: steer it, queue a follow-up or abort it", code=Code.BUSY
            )
        self._busy = True
        return await to_the_end(self._accept(content, equipment, typed))

    async def steer(self, content: tuple[Block, ...], *, follow_up: bool = False, typed: str = "") -> str:
        """Queue a text for the run; return the id of the message that it becomes once it is on disk.

        Raises `Precondition` (NOT_RUNNING), `LimitExceeded` and `StorageError`.
        """
        return await to_the_end(self._queue(content, "followUp" if follow_up else "steer", typed))

    async def change(self, change: Change) -> None:
        """Change settings of the session. Raises `Precondition` (BUSY, LOCKED) and `StorageError`."""
        if self._busy:
            raise Precondition(
                f"session {self._bus.session_id} is running: change it when the run is over", code=Code.BUSY
            )
        self._busy = True
        try:
            await to_the_end(self._change(change))
        finally:
            self._busy = False

    def abort(self) -> bool:
        """Stop the run; return whether one was going on. The run's end is told by its events."""
        if self._run is not None and self._abortable:
            self._stop()
            self._run.cancel()
        else:
            # The run is not under way yet; a task cancelled before its first step would never tell its end.
            self._abort_early = True
        return self._busy

    async def settled(self) -> None:
        """Wait until no run is going on."""
        if self._run is not None:
            await asyncio.wait([self._run])

    async def close(self) -> None:
        """Abort the run if there is one, wait for its end and end the event streams."""
        self.abort()
        await self.settled()
        self._bus.close()

    async def _accept(self, content: tuple[Block, ...], equipment: Equipment, typed: str) -> str:
        self._abort_early = False
        early: list[Body] = []
        try:
            await self.settled()
            await self._take_lock()
            content = await self._points_of(equipment.hooks, early.append).input(content, "prompt")
            message = self._user_message(new_id(), content, typed)
            left = self.session.queued
            await self._append(*(self._undelivered(queued.id) for queued in left), message)
        except BaseException:  # also a cancelled service: what was not accepted must not keep the session busy
            self._busy = False
            await self._lock.aclose()
            raise
        self.run_id = new_id()
        self._bus.begin_run(self.run_id)
        self._points = self._points_of(equipment.hooks)
        self._bus.publish(AgentStart(message.text, message.id))
        for body in early:
            self._bus.publish(body)
        self._machine.enter(AgentState.THINKING)
        if left:
            self._bus.publish(_interrupted(left))
        self._queues.open()
        self._run = asyncio.create_task(self._go(equipment), name=f"run {self.run_id}")
        return self.run_id

    async def _change(self, change: Change) -> None:
        try:
            await self._take_lock()
            await self._append(change)
        finally:
            await self._lock.aclose()

    async def _take_lock(self) -> None:
        """Become the file's only writer; what another process wrote meanwhile becomes part of the session."""
        if await self._lock.enter_async_context(self._log.lock()):
            self.session = await self._source.reload()

    async def _go(self, equipment: Equipment) -> None:
        loop = Loop(self._ports(), equipment)
        end = End(EndReason.COMPLETED)
        self._abortable = True
        try:
            if self._abort_early:
                self._stop()
                raise asyncio.CancelledError
            await self._points.agent_start(self.session.messages[-1].text)
            await loop.run()
        except asyncio.CancelledError:
            end = End(EndReason.ABORTED)
        except YarrowError as error:
            end = by_error(error)
        except Exception as error:  # a bug of ours must end the run like any failure, with an id to find it by
            _logger.exception("run %s failed by a bug", self.run_id)
            end = by_bug(error, self.run_id)
        self._abortable = False
        try:
            # An abort that was put off while the last message was recorded strikes here, not in the middle of the end.
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            end = end if end.failure else End(EndReason.ABORTED)
        await self._finish(end, loop)

    def _stop(self) -> None:
        self._abortable = False
        self._queues.refuse()
        self._machine.enter(AgentState.ABORTING)

    async def _finish(self, end: End, loop: Loop) -> None:
        """Hand back what waits, let go of the file, and tell the end; the agent is idle when it is told."""
        if end.reason is EndReason.ERROR:
            self._enter(AgentState.ERROR)
        left = tuple(waiting.shown for waiting in self._queues.close())
        try:
            await self._append(*(self._undelivered(shown.message_id) for shown in left))
            await self._log.flush()
        except StorageError as error:
            end = End(EndReason.ERROR, end.failure or error.failure())
        await self._points.agent_end(AgentEnd(end.reason, loop.usage, end.failure, left))
        try:
            await self._lock.aclose()
        except StorageError as error:  # letting go may write too; the end must be told all the same
            end = End(EndReason.ERROR, end.failure or error.failure())
        self._machine.enter(AgentState.IDLE)
        self.run_id = ""
        self._busy = False
        self._bus.publish(AgentEnd(end.reason, loop.usage, end.failure, left))
        self._bus.end_run()

    async def _queue(self, content: tuple[Block, ...], mode: Literal["steer", "followUp"], typed: str) -> str:
        content = await self._points.input(content, mode)
        text = "".join(block.text for block in content if isinstance(block, Text))
        waiting = Waiting(QueuedText(new_id(), text, mode == "followUp"), content, typed)
        self._queues.push(waiting)
        self._bus.publish(self._queues.shown())
        queued = Queued(
            id=waiting.shown.message_id, timestamp=self.timestamp(), mode=mode, content=content, typed=typed
        )
        try:
            await self._append(queued)
        except StorageError:
            if self._queues.withdraw(waiting):
                self._bus.publish(self._queues.shown())
                raise
        return queued.id

    async def _deliver(self, *, ending: bool) -> tuple[QueuedText, ...]:
        taken = self._queues.take(ending=ending)
        if taken:
            await to_the_end(self._record_delivery(taken))
        return tuple(waiting.shown for waiting in taken)

    async def _record_delivery(self, taken: tuple[Waiting, ...]) -> None:
        try:
            await self._append(*(self._user_message(one.shown.message_id, one.content, one.typed) for one in taken))
        except StorageError:
            self._queues.put_back(taken)
            raise
        self._bus.publish(self._queues.shown())

    async def _append(self, *records: Record) -> None:
        """Make records durable, then part of the session."""
        if records:
            await self._log.append(*records)
            self.session = fold(self.session, records)

    def _points_of(self, hooks: Hooks, emit: Callable[[Body], None] | None = None) -> Points:
        header = self.session.header
        about = About(header.id, header.cwd, self.run_id, dry_run=header.dry_run)
        return Points(hooks, about, emit or self._bus.publish)

    def _ports(self) -> Ports:
        return Ports(
            emit=self._bus.publish,
            points=self._points,
            record=self._append,
            deliver=self._deliver,
            enter=self._enter,
            history=lambda: self.session.messages,
            new_id=new_id,
            timestamp=self.timestamp,
        )

    def _enter(self, state: AgentState) -> None:
        # The loop may take a step between the request to abort and its cancellation; aborting is not left for it.
        if self._machine.current is not AgentState.ABORTING:
            self._machine.enter(state)

    def _user_message(self, message_id: str, content: tuple[Block, ...], typed: str) -> Message:
        return Message(id=message_id, role=Role.USER, content=content, timestamp=self.timestamp(), typed=typed)

    def _undelivered(self, message_id: str) -> Undelivered:
        return Undelivered(id=message_id, timestamp=self.timestamp())

    def timestamp(self) -> str:
        """Return the time now, as records hold it."""
        return timestamp(self._now())


def _interrupted(left: tuple[Queued, ...]) -> Notice:
    texts = "; ".join("".join(block.text for block in one.content if isinstance(block, Text)) for one in left)
    return Notice("UNDELIVERED", f"accepted in a run that was cut off and never delivered: {texts}")
