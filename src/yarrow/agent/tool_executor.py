"""Execution of the tool calls of one message: in order, read-only calls in parallel, each answered exactly once."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, aclosing
from itertools import groupby
from typing import TYPE_CHECKING, assert_never

from msgspec import Struct
from msgspec.structs import replace

from yarrow.agent.cancellation_shield import run_shielded
from yarrow.agent.run_context import LoopPorts, RunResources
from yarrow.errors import Code, RunError, YarrowError
from yarrow.event.events import Notice, ToolDelta, ToolOutput
from yarrow.message import Block, Message, Role, Text, ToolCall
from yarrow.redaction.redactor import Redactor
from yarrow.redaction.stream import RedactingStream
from yarrow.tool.base import Done, Progress, Result, Tool, ToolContext, ToolFailed
from yarrow.tool.registry import Authorize, limit_result

if TYPE_CHECKING:
    from yarrow.agent.auto_executed_file_changes import ExecutedFiles

MAX_PARALLEL = 8
"""Maximum read-only calls that run in parallel."""
MAX_HELD_DELTAS = 1000
"""Maximum deltas buffered for a call that awaits its turn; later ones are dropped, but the output is complete."""

ABORTED = ToolFailed("Interrupted. Changes made so far were kept.")
STOPPED = ToolFailed("Not run: the run was stopped.")
CUT = ToolFailed("Not run: the message that requested it was incomplete.")


class _BufferedResult(Struct, frozen=True):
    """Result of a call that finished before its turn to be published."""

    deltas: tuple[str, ...]
    result: Result


class ToolExecutor:
    """Runs the tool calls of one run."""

    def __init__(self, ports: LoopPorts, resources: RunResources) -> None:
        self._ports = ports
        self._resources = resources
        self._repetition = LoopDetector()
        self._traces: ExecutedFiles | None = None
        """Files written that other tools execute; None before the first call."""
        self._offered: frozenset[str] = frozenset()
        self._started: set[str] = set()
        """Ids of the calls of the current message that were permitted and started to run."""
        self._by_person = False

    def use_keys(self, keys: Redactor) -> None:
        """Redact these keys from the payloads of hooks; a fallback may bring another key."""
        if keys is not self._resources.keys:
            self._resources = replace(self._resources, keys=keys)

    async def run(self, message: Message, *, offered: frozenset[str]) -> None:
        """Run a message's calls and record their results in call order; `offered` are the tools sent to the model.

        Raises `ConfigError` if the tools cannot be set up, and `RunError` (LOOP_DETECTED) after the batch if a call was
        repeated too often. If cancelled, unanswered calls are answered first: as interrupted, or as not run.
        """
        calls = message.tool_calls
        unanswered = list(calls)
        self._offered = offered
        self._started = set()
        worst = 0
        try:
            await self._ports.hook_runner.response(message, self._resources.keys)
            if calls:
                self._resources = await self._resources.with_tools()
            for alone, group in groupby(calls, key=self._runs_alone):
                if alone:
                    for call in group:
                        worst = max(worst, await self._finish(unanswered, call, await self._run_streaming(call)))
                else:
                    worst = max(worst, await self._run_parallel(unanswered, tuple(group)))
        except asyncio.CancelledError:
            await self._answer_all(unanswered, self._explain_abort)
            raise
        except YarrowError:
            self.emit_not_run(unanswered)
            raise
        if worst >= END_AT:
            raise RunError(
                f"the model repeated the same call with the same result {worst} times in a row: rephrase the prompt",
                code=Code.LOOP_DETECTED,
            )

    async def run_for_user(self, call: ToolCall) -> Result:
        """Run a call for the user, stream its output and return its result without recording it.

        Any tool can be run, and no permission is asked: the user requested the call. Raises `ConfigError`.
        """
        self._resources = await self._resources.with_tools()
        self._offered = frozenset(self._resources.registry.names())
        self._by_person = True
        return await self._run_streaming(call)

    async def notices(self) -> list[Notice]:
        """Return the notices for the user about the calls and the files that they changed."""
        return [] if self._traces is None else await self._traces.notices(self._resources.require_context())

    async def answer_truncated(self, calls: Sequence[ToolCall]) -> None:
        """Answer the calls of an incomplete message; like the message, the results are recorded but never sent."""
        await self._answer_all(list(calls), lambda _: CUT, incomplete=True)

    def emit_not_run(self, calls: Sequence[ToolCall]) -> None:
        """Report calls as neither run nor recorded, for a run that ends because recording fails."""
        for call in calls:
            self._ports.emit(ToolOutput(call.id, call.name, "Not run: the run ended first.", "", is_error=True))

    def _explain_abort(self, call: ToolCall) -> ToolFailed:
        return ABORTED if call.id in self._started else STOPPED

    def _runs_alone(self, call: ToolCall) -> bool:
        return not self._resources.registry.is_read_only(call.name)

    async def _run_streaming(self, call: ToolCall) -> Result:
        """Run a call and stream its output."""
        # An abort that was deferred during recording is raised here, before the tool starts.
        await asyncio.sleep(0)
        result: Result = ToolFailed("The tool ended without a result.")
        async with aclosing(self._execute(call)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Progress):
                    self._ports.emit(ToolDelta(call.id, piece.text))
                else:
                    result = piece
        return result

    async def _run_parallel(self, unanswered: list[ToolCall], calls: tuple[ToolCall, ...]) -> int:
        """Run read-only calls in parallel and publish each as a whole, in call order."""
        if len(calls) == 1:
            return await self._finish(unanswered, calls[0], await self._run_streaming(calls[0]))
        gate = asyncio.Semaphore(MAX_PARALLEL)
        worst = 0
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._run_buffered(call, gate)) for call in calls]
        for call, task in zip(calls, tasks, strict=True):
            ran = task.result()
            for text in ran.deltas:
                self._ports.emit(ToolDelta(call.id, text))
            worst = max(worst, await self._finish(unanswered, call, ran.result))
        return worst

    async def _run_buffered(self, call: ToolCall, gate: asyncio.Semaphore) -> _BufferedResult:
        deltas: list[str] = []
        result: Result = ToolFailed("The tool ended without a result.")
        async with gate, aclosing(self._execute(call)) as pieces:
            async for piece in pieces:
                if not isinstance(piece, Progress):
                    result = piece
                elif len(deltas) < MAX_HELD_DELTAS:
                    deltas.append(piece.text)
        return _BufferedResult(tuple(deltas), result)

    def _execute(self, call: ToolCall) -> AsyncGenerator[Progress | Result]:
        # Imported here: a run without a call changes no files, and checks no permission.
        from yarrow.agent.auto_executed_file_changes import ExecutedFiles

        resources = self._resources
        self._traces = traces = self._traces or ExecutedFiles()
        pieces = resources.registry.execute(
            call,
            traces.reporting(resources.require_context()),
            authorize=self._record_start(call),
            dry_run=resources.settings.dry_run,
            offered=self._offered,
        )
        if self._runs_alone(call) and not (self._by_person or resources.settings.dry_run or call.invalid_arguments):
            pieces = traces.left_by(pieces, call, resources)
        if self._ports.hook_runner.at_tools:
            # Hooks get the output with keys redacted, and may add new ones.
            pieces = self._hooked(call, self._redacted(pieces))
        if resources.running is not None:
            pieces = _timed(pieces, resources.running(call.id))
        return self._redacted(pieces)

    def _record_start(self, call: ToolCall) -> Authorize:
        """Return the authorizer of a call, which also records that a permitted call starts."""
        from yarrow.agent.authorization import ToolAuthorizer  # as above

        authorizer = ToolAuthorizer(call, self._resources, None if self._by_person else self._ports.questions)

        async def authorize(tool: Tool, arguments: Struct, context: ToolContext) -> ToolContext | ToolFailed:
            permitted = await authorizer(tool, arguments, context)
            if not isinstance(permitted, ToolFailed):
                self._started.add(call.id)
            return permitted

        return authorize

    def _redacted(self, pieces: AsyncGenerator[Progress | Result]) -> AsyncGenerator[Progress | Result]:
        redactor = self._resources.redactor
        return pieces if redactor.is_empty else _without_secrets(pieces, redactor)

    async def _hooked(
        self, call: ToolCall, pieces: AsyncGenerator[Progress | Result]
    ) -> AsyncGenerator[Progress | Result]:
        """Run a call between its hooks; a hook may answer it instead."""
        hook_runner = self._ports.hook_runner
        result: Result | None = None
        async with aclosing(pieces):
            # The registry answers invalid calls.
            if not call.invalid_arguments:
                from yarrow.agent.authorization import asks_outside  # as above

                resources = self._resources
                result = await hook_runner.before_call(
                    call,
                    read_only=resources.registry.is_read_only(call.name),
                    contained=resources.contained
                    and resources.registry.get_access(call.name).sandboxed
                    and not asks_outside(call),
                )
            if result is None:
                async for piece in pieces:
                    if isinstance(piece, Progress):
                        yield piece
                    else:
                        result = piece
        if result is not None:
            result = await hook_runner.after_call(self._resources.keys.redact_struct(call), result)
            yield limit_result(result, self._resources.require_context())

    async def _finish(self, unanswered: list[ToolCall], call: ToolCall, result: Result) -> int:
        """Answer a finished call; return how many times in a row it had this result."""
        unanswered.remove(call)
        times = self._repetition.record(call, result.text)
        await self._answer(call, result, note=NOTE if times >= NOTE_AT else "")
        return times

    async def _answer(self, call: ToolCall, result: Result, *, note: str = "", incomplete: bool = False) -> None:
        """Record the result, then publish it."""
        text = result.text + note
        diff = result.diff if isinstance(result, Done) else ""
        images: tuple[Block, ...] = result.images if isinstance(result, Done) else ()
        message = Message(
            id=self._ports.new_id(),
            role=Role.TOOL,
            content=(Text(text), *images),
            timestamp=self._ports.timestamp(),
            tool_call_id=call.id,
            tool_name=call.name,
            is_error=isinstance(result, ToolFailed),
            diff=diff,
            incomplete=incomplete,
        )
        told = ToolOutput(call.id, call.name, text, message.id, message.is_error, diff)
        await run_shielded(self._record(message, told))

    async def _answer_all(
        self, calls: list[ToolCall], find_result: Callable[[ToolCall], Result], *, incomplete: bool = False
    ) -> None:
        try:
            while calls:
                call = calls.pop(0)
                await self._answer(call, find_result(call), incomplete=incomplete)
        except YarrowError:
            self.emit_not_run(calls)
            raise

    async def _record(self, message: Message, told: ToolOutput) -> None:
        try:
            await self._ports.record(message)
        except YarrowError as error:
            text = f"{told.text}\n[not recorded: {error.message}]"
            self._ports.emit(ToolOutput(told.tool_call_id, told.name, text, "", is_error=True, diff=told.diff))
            raise
        self._ports.emit(told)


async def _timed(
    pieces: AsyncGenerator[Progress | Result], running: AbstractContextManager[None]
) -> AsyncGenerator[Progress | Result]:
    """Pass on the tool's output inside the `running` context."""
    with running:
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece


async def _without_secrets(
    pieces: AsyncGenerator[Progress | Result], redactor: Redactor
) -> AsyncGenerator[Progress | Result]:
    """Pass on the tool's output with known keys redacted, before the model, the events and the file receive it."""
    stream = RedactingStream(redactor)
    async with aclosing(pieces):
        async for piece in pieces:
            told = stream.feed(piece.text) if isinstance(piece, Progress) else stream.flush()
            if told:
                yield Progress(told)
            match piece:
                case Progress():
                    pass
                case Done(text, diff, images):
                    yield Done(redactor.redact_text(text), redactor.redact_text(diff), images)
                case ToolFailed(text):
                    yield ToolFailed(redactor.redact_text(text))
                case _:
                    assert_never(piece)


NOTE_AT = 3
"""Repetitions after which the result contains a note for the model."""
END_AT = 5
"""Repetitions after which the run ends."""

NOTE = f"\n[This is the same call with the same result {NOTE_AT} or more times in a row. Try something else.]"


class LoopDetector:
    """Counts consecutive repetitions of a call with the same result."""

    def __init__(self) -> None:
        self._last: tuple[str, str, str] | None = None
        self.count = 0

    def record(self, call: ToolCall, result: str) -> int:
        """Record a finished call and return its consecutive count, starting at 1."""
        this = (call.name, call.arguments, result)
        self.count = self.count + 1 if this == self._last else 1
        self._last = this
        return self.count
