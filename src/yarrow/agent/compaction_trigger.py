"""Token counting and automatic compaction of one session's context."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from yarrow.agent.cancellation_shield import run_shielded
from yarrow.agent.hooks import HookRunner
from yarrow.agent.model_context import ContextBudget, ModelContext, TokenCounter, fixed_tokens, needs_compaction
from yarrow.agent.retry import RetryPolicy
from yarrow.agent.run_context import RunResources
from yarrow.agent.session_writer import SessionWriter
from yarrow.agent.user_action import UserAction
from yarrow.errors import Code, Failure, Precondition, YarrowError
from yarrow.event.events import AgentState, Body, CompactionEnd, CompactionReason, CompactionStart, Notice, UsageReport
from yarrow.message import ToolSpec, Usage

if TYPE_CHECKING:
    from yarrow.agent.compaction.plan import CompactionPlan, CompactionTask

_ABORTED = "Compaction cancelled; nothing was changed"


class Compactor:
    """Counts and compacts one session's context; nothing changes until a summary is complete."""

    def __init__(self, writer: SessionWriter, enter: Callable[[AgentState], None], meter: TokenCounter) -> None:
        self._writer = writer
        self._enter = enter
        self._meter = meter
        self._told: set[str] = set()
        self._fixed: tuple[str, tuple[ToolSpec, ...], int] = ("", (), 0)
        self.spent = Usage()
        """Tokens used by the summaries of this run."""

    def begin(self) -> None:
        """Reset the counters for a new run."""
        self.spent = Usage()
        self._told.clear()

    def sent(self) -> ModelContext:
        """Return the part of the session that is sent to the model."""
        return self._meter.context(self._writer.session).sent()

    def used(self, resources: RunResources) -> int:
        """Return the context size in tokens, reported by the model where known and estimated otherwise."""
        return self._meter.used(self._meter.context(self._writer.session), self._budget(resources, 0))

    async def compact_if_needed(
        self, resources: RunResources, hook_runner: HookRunner, *, reason: CompactionReason, window: int
    ) -> None:
        """Compact the context if it is due, or after an overflow of a window of `window` tokens (0 if unknown).

        Raises `RunError` and `ProviderError`; nothing is changed then.
        """
        session, frame = self._writer.session, self._budget(resources, window)
        used = self._meter.used(self._meter.context(session), frame)
        if reason == "auto" and not needs_compaction(session, frame, used):
            return
        # Imported here because most runs compact nothing.
        from yarrow.agent.compaction.plan import plan

        planned = plan(self._task(resources, reason, window), self._meter)
        if isinstance(planned, Notice):
            self._notice_once(planned)
            return
        self._enter(AgentState.COMPACTING)
        self._emit_start(planned)
        end = CompactionEnd(error=Failure(Code.ABORTED, _ABORTED))
        try:
            end = await self._carry_out(planned, resources, hook_runner)
        except YarrowError as error:
            end = CompactionEnd(error=error.failure())
            raise
        finally:  # also after an abort
            self._writer.publish(end)
            self._enter(AgentState.THINKING)

    def compact_for_user(self, instructions: str, resources: RunResources, hook_runner: HookRunner) -> UserAction:
        """Return the compaction requested by the user.

        Raises `Precondition` (NOTHING_TO_COMPACT) and `RunError` (COMPACTION_INEFFECTIVE).
        """
        planned = self._plan_for_user(resources, instructions)

        async def work() -> Body:
            self._emit_start(planned)
            return await self._carry_out(planned, resources, hook_runner)

        def failed(failure: Failure) -> Body:
            return CompactionEnd(error=failure)

        return UserAction("compaction", AgentState.COMPACTING, work, failed, _ABORTED)

    def _plan_for_user(self, resources: RunResources, instructions: str) -> "CompactionPlan":
        from yarrow.agent.compaction.plan import plan

        asked = self._writer.redactor.redact_text(instructions)
        planned = plan(replace(self._task(resources, "manual", 0), instructions=asked), self._meter)
        if isinstance(planned, Notice):
            raise Precondition(planned.text, code=Code.NOTHING_TO_COMPACT)
        return planned

    async def _carry_out(
        self, planned: "CompactionPlan", resources: RunResources, hook_runner: HookRunner
    ) -> CompactionEnd:
        from yarrow.agent.compaction.compact import compact, summarize_with

        instructions = await hook_runner.before_compact(planned.tokens_before, planned.task.instructions)
        planned = replace(planned, task=replace(planned.task, instructions=instructions))
        retries = partial(RetryPolicy, resources.settings.retry, self._writer.pause, self._writer.publish)
        summarise = summarize_with(resources.provider, self._spend, retries, before=hook_runner.before_request)
        record = await compact(planned, self._meter, summarise=summarise, timestamp=self._writer.timestamp())
        record = self._writer.redactor.redact_struct(record)
        await run_shielded(self._writer.append(record))
        await hook_runner.after_compact(record.tokens_before, record.tokens_after, record.summary)
        return CompactionEnd(record.tokens_after, record.summary)

    def _task(self, resources: RunResources, reason: CompactionReason, window: int) -> "CompactionTask":
        from yarrow.agent.compaction.plan import CompactionTask

        session = self._writer.session
        context = self._meter.context(session)
        header = session.header
        # The model belongs to the session's provider; another one does not know it.
        summariser = header.compaction.model if header.provider in ("", resources.settings.provider) else ""
        frame = self._budget(resources, window)
        return CompactionTask(session, context, frame, reason, resources.registry, summariser=summariser)

    def _emit_start(self, planned: "CompactionPlan") -> None:
        self._writer.publish(CompactionStart(planned.task.reason, planned.tokens_before))
        if planned.notice is not None:
            self._notice_once(planned.notice)

    def _notice_once(self, notice: Notice) -> None:
        """Emit the notice once per run: it would repeat before every turn."""
        if notice.code not in self._told:
            self._told.add(notice.code)
            self._writer.publish(notice)

    def _spend(self, usage: Usage) -> None:
        self.spent += usage
        self._writer.publish(UsageReport(usage))

    def _budget(self, resources: RunResources, window: int) -> ContextBudget:
        settings, info = resources.settings, resources.info
        system, tools = settings.system, resources.tools()
        if self._fixed[:2] != (system, tools):
            self._fixed = (system, tools, fixed_tokens(system, tools))
        return ContextBudget(settings.provider, settings.model, window or info.context_window, self._fixed[2])
