"""Execution of a compaction: requests the summary and creates the record that replaces the dropped messages."""

from collections.abc import Callable
from contextlib import aclosing
from typing import assert_never

from msgspec.structs import replace

from yarrow.agent.compaction.plan import CompactionPlan, ineffective
from yarrow.agent.compaction.summary import (
    FULL_PROMPT,
    TURN_PREFIX_PROMPT,
    Summarize,
    SummaryAnswer,
    SummarySpec,
    input_budget,
    list_touched_files,
    parse_summary,
    render_entries,
    request,
    strip_marker,
    summary_text,
    truncate,
    write_notes,
)
from yarrow.agent.message_builder import MAX_ANSWER_CHARACTERS
from yarrow.agent.model_context import TokenCounter, context_of, last_asked
from yarrow.agent.retry import TOO_LARGE, RetryPolicy, run_with_retries
from yarrow.errors import Code, ProviderError, RunError
from yarrow.message import StopReason, Usage
from yarrow.provider.base import (
    CallPiece,
    CompletionRequest,
    NoticePiece,
    OpaquePiece,
    Provider,
    StopPiece,
    TextPiece,
    ThinkingPiece,
    UsagePiece,
)
from yarrow.session.record import Compaction
from yarrow.session.state import apply_record

MAX_HALVINGS = 4
"""Maximum number of times that the request size is halved after a request was too large."""
CUT_SUMMARY = "[truncated at the output limit]"


async def compact(plan: CompactionPlan, meter: TokenCounter, *, summarise: Summarize, timestamp: str) -> Compaction:
    """Return the compaction record, to be appended by the caller; the session is unchanged until then.

    Raises `RunError` (COMPACTION_INEFFECTIVE) if the context would not become smaller, and what `summarise` raises.
    """
    task = plan.task
    writer, notes, prefix = await _written(plan, meter, summarise)
    previous = task.state.compaction
    files = list_touched_files(plan.dropped, previous, cwd=task.state.header.cwd, registry=task.registry)
    messages = task.context.messages
    kept = messages[plan.cut.first_kept].id if plan.cut.first_kept < len(messages) else ""
    draft = Compaction(
        timestamp=timestamp,
        summary=summary_text(notes, files, listing=plan.listing, prefix=prefix),
        first_kept_message_id=kept,
        tokens_before=plan.tokens_before,
        tokens_after=0,
        reason=task.reason,
        read_files=files.read,
        modified_files=files.modified,
        split_turn=plan.cut.split_turn,
        model=writer.model,
        usage=writer.usage,
    )
    return _shrinking(draft, plan, meter)


async def _written(
    plan: CompactionPlan, meter: TokenCounter, summarise: Summarize
) -> tuple["_SummaryWriter", str, str]:
    """Return the writer, its notes on the dropped messages, and its notes on the start of a split turn.

    The maximum request size is not always known, and never in bytes; a request that is too large is split.
    """
    halvings = 0
    while True:
        writer = _SummaryWriter(plan, meter, summarise)
        try:
            return writer, await writer.whole(), await writer.prefix() if plan.cut.split_turn else ""
        except ProviderError as error:
            # Plan again if this error reports the context window for the first time.
            told_first = error.context_window and plan.task.reason == "auto"
            if halvings == MAX_HALVINGS or error.code not in TOO_LARGE or told_first:
                raise
            half = (plan.window or plan.tokens_before) // 2
            plan = replace(plan, window=min(half, error.context_window or half))
            halvings += 1


def summarize_with(provider: Provider, spent: Callable[[Usage], None], retries: Callable[[], RetryPolicy]) -> Summarize:
    """Return a function that requests summaries from a provider; `spent` receives the usage of each call.

    Failed calls are reported to `spent` too. `retries` creates the retry policy of each text. The function also raises
    `RunError`: CONTENT_FILTER if the backend withholds the summary, OUTPUT_LIMIT if it exceeds the maximum answer size,
    EMPTY_RESPONSE if it is empty.
    """

    async def summarise(asked: CompletionRequest) -> SummaryAnswer:
        return await run_with_retries(lambda: once(asked), retries())

    async def once(asked: CompletionRequest) -> SummaryAnswer:
        text = ""
        usage: Usage | None = None
        stop: StopReason | None = None
        async with aclosing(provider.stream(asked)) as pieces:
            async for piece in pieces:
                match piece:
                    case TextPiece(more):
                        text += more
                        _check_length(text)
                    case UsagePiece(usage):
                        spent(usage)
                    case StopPiece(stop):
                        pass
                    case ThinkingPiece() | OpaquePiece() | CallPiece() | NoticePiece():  # no tools are offered
                        continue
                    case _:
                        assert_never(piece)
        if stop is StopReason.CONTENT_FILTER:
            raise RunError("the backend's content filter blocked the summary", code=Code.CONTENT_FILTER)
        if stop is None:
            raise ProviderError(Code.STREAM_TRUNCATED, "the summary ended before it was complete", retryable=True)
        if not strip_marker(text):
            raise RunError(f"{asked.model} returned an empty summary: try again or use another model")
        cut = stop is StopReason.MAX_TOKENS and text.strip()
        return SummaryAnswer(f"{text}\n{CUT_SUMMARY}" if cut else text, usage)

    return summarise


def _check_length(text: str) -> None:
    if len(text) > MAX_ANSWER_CHARACTERS:
        raise RunError(f"the summary exceeds {MAX_ANSWER_CHARACTERS} characters", code=Code.OUTPUT_LIMIT)


class _SummaryWriter:
    """Requests the texts of one compaction from a model."""

    def __init__(self, plan: CompactionPlan, meter: TokenCounter, summarise: Summarize) -> None:
        task = plan.task
        self.model = task.summariser or task.frame.model
        self.usage: Usage | None = None
        self._plan = plan
        self._summarise = summarise
        # The window is in the model's tokens; a ratio below 1 is not trusted to enlarge it.
        self._window = int(plan.window / max(1.0, meter.ratios.of(task.frame.provider, self.model)))
        self._before = parse_summary(task.state.compaction.summary) if task.state.compaction else ""

    async def whole(self) -> str:
        """Return the notes on all dropped messages."""
        wanted = self._wanted(FULL_PROMPT, self._plan.most)
        return await write_notes(self._plan.dropped, wanted, self._before, ask=self._ask)

    async def prefix(self) -> str:
        """Return the notes on the dropped part of a split turn."""
        plan = self._plan
        context, wanted = plan.task.context, self._wanted(TURN_PREFIX_PROMPT, plan.most // 2)
        asked = last_asked(context.messages, plan.cut.first_kept)
        began = max(asked or 0, context.start)
        # The previous summary already contains what an earlier compaction dropped from this turn.
        notes = truncate(wanted, self._before) if asked is not None and asked < context.start else ""
        entries = render_entries(context.messages[began : plan.cut.first_kept], input_budget(wanted, notes))
        return await self._ask(request(wanted, "\n".join(entries), notes))

    def _wanted(self, text: str, most: int) -> SummarySpec:
        return SummarySpec(self.model, self._window, most, text, self._plan.task.instructions)

    async def _ask(self, asked: CompletionRequest) -> str:
        answer = await self._summarise(asked)
        if answer.usage is not None:
            self.usage = answer.usage + (self.usage or Usage())
        return strip_marker(answer.text)


def _shrinking(draft: Compaction, plan: CompactionPlan, meter: TokenCounter) -> Compaction:
    """Return the record with its token estimate. Raises `RunError` if the context would not become smaller."""
    task = plan.task
    after = context_of(apply_record(task.state, draft))
    tokens = meter.estimate(after, task.frame)
    if tokens >= plan.tokens_before:
        raise ineffective(task, meter)
    return replace(draft, tokens_after=tokens)
