"""The agent of one session: its state and the single task it may run."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

from yarrow.agent.cancellation_shield import run_shielded
from yarrow.agent.compaction_trigger import Compactor
from yarrow.agent.exclusive_task import (
    ExclusiveTask,
    RunningCount,
    RunOutcome,
    StateMachine,
    from_error,
    from_exception,
)
from yarrow.agent.hooks import HookContext, HookName, HookRegistry, HookRunner
from yarrow.agent.loop import Loop
from yarrow.agent.message_queue import MessageDelivery, interrupted
from yarrow.agent.model_context import TokenCounter
from yarrow.agent.permission_broker import PermissionBroker, find_abandoned
from yarrow.agent.run_context import LoopPorts, RunResources
from yarrow.agent.session_writer import RedactingEmitter, SessionWriter, acquire_session
from yarrow.agent.tool_executor import ToolExecutor
from yarrow.agent.user_action import UserAction, run_user_tool
from yarrow.errors import StorageError, YarrowError
from yarrow.event.events import AgentEnd, AgentStart, AgentState, Body, EndReason, Notice, QueuedText
from yarrow.message import Block, Message, ToolCall
from yarrow.redaction.redactor import Redactor
from yarrow.session.ids import new_id
from yarrow.session.record import Change, Record
from yarrow.session.state import SessionState

T = TypeVar("T")

_logger = logging.getLogger("yarrow.agent")
_UNCHECKED = Notice(
    "UNCHECKED_RUN",
    "This run was not checked for files that other tools execute, because of a bug in Yarrow. Review its changes.",
)


class _Opening(Struct, frozen=True):
    """Records and notices of the start of a run."""

    message: Message
    """The prompt."""
    records: tuple[Record, ...]
    notices: tuple[Notice, ...]


class Agent:
    """The only writer of its session. Must be used from one event loop."""

    def __init__(self, writer: SessionWriter, meter: TokenCounter, running_count: RunningCount) -> None:
        self._writer = writer
        self._machine = StateMachine(writer.publish)
        self._exclusive = ExclusiveTask(writer.session.header.id, running_count)
        self._delivery = MessageDelivery(writer)
        self._compactor = Compactor(writer, self._enter, meter)
        self.questions = PermissionBroker(writer)
        """Pending permission requests and their answers."""
        self.run_id = ""
        """Id of the current run; empty if there is none."""
        self._hook_runner = self.make_hook_runner(HookRegistry())

    @property
    def session(self) -> SessionState:
        """The current session state."""
        return self._writer.session

    @property
    def state(self) -> AgentState:
        """The current agent state."""
        return self._machine.current

    @property
    def busy(self) -> bool:
        """True while a run or another exclusive task is running or being accepted."""
        return self._exclusive.taken

    @property
    def queued(self) -> tuple[tuple[QueuedText, ...], tuple[QueuedText, ...]]:
        """The pending steering and follow-up messages."""
        shown = self._delivery.snapshot()
        return shown.steering, shown.follow_ups

    def context_tokens(self, resources: RunResources) -> int:
        """Return the context size in tokens, reported by the model where known and estimated otherwise."""
        return self._compactor.used(resources)

    async def prompt(
        self, content: tuple[Block, ...], resources: RunResources, *, typed: str = "", message_id: str = ""
    ) -> str:
        """Accept a prompt and start its run; return the run id once the prompt is on disk.

        `typed` is the user's original input if `content` was expanded from a command. `message_id` is the id of the new
        message; a new id is created if it is empty. Raises `Precondition` (BUSY, LOCKED) and `StorageError`; nothing is
        accepted then.
        """
        self._exclusive.acquire("steer it, queue a follow-up, or abort it")
        return await run_shielded(self._accept(content, resources, typed=typed, message_id=message_id or new_id()))

    async def compact(self, instructions: str, resources: RunResources) -> None:
        """Start a compaction of the context; events report its progress and outcome.

        Raises `Precondition` (BUSY, LOCKED, NOTHING_TO_COMPACT), `RunError` (COMPACTION_INEFFECTIVE) and
        `StorageError`; nothing is started then.
        """
        self._exclusive.acquire("compact it after the run")

        def prepare() -> UserAction:
            return self._compactor.compact_for_user(instructions, resources, self.make_hook_runner(resources.hooks))

        await run_shielded(self._start_user_action(prepare, resources))

    async def run_tool(self, call: ToolCall, resources: RunResources, *, silent: bool) -> None:
        """Start a tool call on behalf of the user; events report its outcome.

        Records the call and its result for the model unless `silent`. Raises `Precondition` (BUSY, LOCKED) and
        `StorageError`; nothing is started then.
        """
        self._exclusive.acquire("run the tool after the run")

        def prepare() -> UserAction:
            held = resources.restricted_by(self.session.header)
            return run_user_tool(call, ToolExecutor(self._ports(held), held), self._writer, silent=silent)

        await run_shielded(self._start_user_action(prepare, resources))

    async def steer(self, content: tuple[Block, ...], *, follow_up: bool = False, typed: str = "") -> str:
        """Queue a message for the run; return its message id once it is on disk.

        Raises `Precondition` (NOT_RUNNING), `LimitExceeded` and `StorageError`.
        """
        how = "followUp" if follow_up else "steer"
        return await run_shielded(self._delivery.queue(content, how, typed=typed, hook_runner=self._hook_runner))

    async def change(self, change: Change, keys: Redactor) -> None:
        """Change session settings, redacting `keys`. Raises `Precondition` (BUSY, LOCKED) and `StorageError`."""
        self._exclusive.acquire("change it after the run")
        try:
            await run_shielded(self._change(change, keys))
        finally:
            self._exclusive.release()

    def abort(self) -> bool:
        """Abort the current task; return whether there was one. An event reports its end."""
        if self._exclusive.abort():
            self._request_abort()
        return self._exclusive.taken

    async def settled(self) -> None:
        """Wait until the agent is idle."""
        await self._exclusive.settled()

    async def close(self) -> None:
        """Abort the current task, wait for its end and close the event streams."""
        self.abort()
        await self.settled()
        self._writer.bus.close()

    def timestamp(self) -> str:
        """Return the current time in the format of session records."""
        return self._writer.timestamp()

    async def _accept(self, content: tuple[Block, ...], resources: RunResources, *, typed: str, message_id: str) -> str:
        early: list[Body] = []
        has_hook = HookName.MODIFY_INPUT in resources.hooks
        opened: list[_Opening] = []

        def open_run() -> tuple[Record, ...]:
            opened.append(self._open(self._writer.user_message(message_id, content, typed)))
            return opened[-1].records

        # A hook is called only once no other process can write; without one, locking and writing are one disk call.
        async with acquire_session(self._exclusive, self._writer, resources.keys, make=tuple if has_hook else open_run):
            resources = resources.restricted_by(self.session.header)
            if has_hook:
                content = await self.make_hook_runner(resources.hooks, early.append).input(content, "prompt")
                await self._writer.append(*open_run())
        self.run_id = new_id()
        self._writer.bus.begin_run(self.run_id)
        self._hook_runner = self.make_hook_runner(resources.hooks)
        self._compactor.begin()
        for body in (AgentStart(opened[-1].message.text, opened[-1].message.id, typed), *early):
            self._writer.publish(body)
        self._machine.enter(AgentState.THINKING)
        for notice in opened[-1].notices:
            self._writer.publish(notice)
        self._delivery.open()
        self.questions.presence.begin_run()
        self._exclusive.start(self._run_prompt(resources), f"run {self.run_id}")
        return self.run_id

    def _open(self, message: Message) -> _Opening:
        """Return what a run with this prompt records, and reports, about the session that it starts from."""
        left = self.session.queued
        denied = find_abandoned(self.session, self._writer.timestamp())
        undelivered = self._delivery.undelivered_records(tuple(one.id for one in left))
        return _Opening(
            message=message,
            records=(*undelivered, *denied.records, message),
            notices=(*([interrupted(left)] if left else []), *denied.notices),
        )

    async def _change(self, change: Change, keys: Redactor) -> None:
        self._writer.redactor = keys
        try:
            await self._writer.lock()
            await self._writer.append(change)
        finally:
            await self._writer.unlock()

    async def _run_prompt(self, resources: RunResources) -> None:
        loop = Loop(self._ports(resources), resources)

        async def work() -> None:
            await self._hook_runner.agent_start(self.session.messages[-1].text)
            await loop.run()

        _, end = await self._attempt(work, f"run {self.run_id}", self.run_id)
        try:
            # An abort that was deferred while the last message was recorded is raised here, not halfway through the
            # cleanup.
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            end = end if end.failure else RunOutcome(EndReason.ABORTED)
        await self._finish(end, loop)

    async def _attempt(self, work: Callable[[], Awaitable[T]], name: str, log_id: str) -> tuple[T | None, RunOutcome]:
        """Return the result of a task, None if it has none, and the outcome, whatever ended the task.

        `log_id` is the id under which the log has the details of a bug.
        """
        result, end = None, RunOutcome(EndReason.COMPLETED)
        try:
            if self._exclusive.mark_abortable():
                self._request_abort()
                raise asyncio.CancelledError
            result = await work()
        except asyncio.CancelledError:
            end = RunOutcome(EndReason.ABORTED)
        except YarrowError as error:
            end = from_error(error)
        except Exception as error:  # a bug: without an end, clients would wait and the session would stay locked
            _logger.exception("%s failed because of a bug", name)
            end = from_exception(error, log_id)
        self._exclusive.mark_finishing()
        return result, end

    def _request_abort(self) -> None:
        self._delivery.stop_accepting()
        self._machine.enter(AgentState.ABORTING)

    async def _finish(self, end: RunOutcome, loop: Loop) -> None:
        """Return queued messages, release the session file and emit the end event; the agent is idle by then."""
        if end.reason is EndReason.ERROR:
            self._enter(AgentState.ERROR)
        left = self._delivery.close()
        self.questions.presence.end_run()
        for notice in await self._noticed(loop):
            self._writer.publish(self._writer.redactor.redact_struct(notice))
        usage = loop.usage + self._compactor.spent
        try:
            await self._writer.append(*self._delivery.undelivered_records(tuple(one.message_id for one in left)))
            await self._writer.flush()
        except StorageError as error:
            end = RunOutcome(EndReason.ERROR, end.failure or error.failure())
        ended = AgentEnd(end.reason, usage, end.failure, left)
        await self._hook_runner.agent_end(self._writer.redactor.redact_struct(ended))
        failure = await self._release()
        if failure is not None:
            end = RunOutcome(EndReason.ERROR, end.failure or failure.failure())
        self.run_id = ""
        self._writer.publish(AgentEnd(end.reason, usage, end.failure, left))
        self._writer.bus.end_run()

    async def _noticed(self, loop: Loop) -> list[Notice]:
        try:
            return await loop.notices()
        except Exception:  # a bug: it must not withhold the end event from the clients
            _logger.exception("run %s was not checked for leftovers", self.run_id)
            return [_UNCHECKED]

    async def _start_user_action(self, prepare: Callable[[], UserAction], resources: RunResources) -> None:
        async with acquire_session(self._exclusive, self._writer, resources.keys):
            self._compactor.begin()
            self._hook_runner = self.make_hook_runner(resources.hooks)
            action = prepare()
        self._machine.enter(action.state)
        self._exclusive.start(self._run_user_action(action), action.name)

    async def _run_user_action(self, action: UserAction) -> None:
        session_id = self.session.header.id
        end, outcome = await self._attempt(action.work, f"{action.name} of session {session_id}", session_id)
        refused = await self._release()
        if end is None:
            end = action.failed(outcome.failure or action.abortion)
        elif refused is not None:
            end = action.failed(refused.failure())
        self._writer.publish(end)

    async def _release(self) -> StorageError | None:
        """Become idle; return the storage error raised while releasing the file, if any."""
        failure = None
        try:
            await self._writer.unlock()
        except StorageError as error:  # releasing may write too; the end event must be emitted anyway
            failure = error
        self._machine.enter(AgentState.IDLE)
        self._exclusive.release()
        return failure

    def make_hook_runner(self, hooks: HookRegistry, emit: Callable[[Body], None] | None = None) -> HookRunner:
        """Return the caller of hooks about this session; its notices are events unless `emit` takes them."""
        header = self.session.header
        about = HookContext(header.id, header.cwd, self.run_id, dry_run=header.dry_run)
        return HookRunner(hooks, about, emit or self._writer.publish)

    def _ports(self, resources: RunResources) -> LoopPorts:
        within = self._compactor.compact_if_needed
        emitter = RedactingEmitter(self._writer.publish, resources.keys)

        def use_keys(keys: Redactor) -> None:
            self._writer.redactor = keys
            emitter.use_keys(keys)

        return LoopPorts(
            session_id=self.session.header.id,
            # A fallback may bring the first key.
            emit=self._writer.bus.publish if resources.keys.is_empty and not resources.fallbacks else emitter,
            use_keys=use_keys,
            hook_runner=self._hook_runner,
            pause=self._writer.pause,
            questions=self.questions,
            record=self._writer.append,
            deliver=self._delivery.deliver,
            enter=self._enter,
            context=self._compactor.sent,
            compact=lambda used, reason, window: within(used, self._hook_runner, reason=reason, window=window),
            new_id=new_id,
            timestamp=self.timestamp,
        )

    def _enter(self, state: AgentState) -> None:
        # The loop may take a step between the abort request and its cancellation; the state stays ABORTING then.
        if self._machine.current is not AgentState.ABORTING:
            self._machine.enter(state)
