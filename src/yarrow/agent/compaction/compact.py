"""Execution of a compaction: requests the summary and creates the record that replaces the dropped messages."""

from collections.abc import Awaitable, Callable
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
    WrittenNotes,
    list_touched_files,
    parse_summary,
    render_message,
    strip_marker,
    summary_text,
    write_notes,
)
from yarrow.agent.message_builder import MAX_ANSWER_CHARACTERS
from yarrow.agent.model_context import TokenCounter, context_of, is_asked, text_tokens
from yarrow.agent.retry import TOO_LARGE, RetryPolicy, run_with_retries
from yarrow.errors import Code, ProviderError, RunError
from yarrow.message import StopReason, Usage
from yarrow.provider.base import (
    CallPiece,
    CompletionRequest,
    NoticePiece,
    OpaquePiece,
    Provider,
    RequestPurpose,
    StopPiece,
    TextPiece,
    ThinkingPiece,
    UsagePiece,
)
from yarrow.session.record import Compaction
from yarrow.session.state import apply_record

BeforeRequest = Callable[[CompletionRequest], Awaitable[CompletionRequest]]
"""Returns a request as changed by hooks."""
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
    """Return the writer, its notes on the dropped messages before a split turn, and those on the start of that turn.

    The maximum request size is not always known, and never in bytes; a request that is too large is split.
    """
    halvings = 0
    while True:
        writer = _SummaryWriter(plan, meter, summarise)
        try:
            return writer, await writer.notes(), await writer.prefix()
        except ProviderError as error:
            # Plan again if this error reports the context window for the first time.
            told_first = error.context_window and plan.task.reason == "auto"
            if halvings == MAX_HALVINGS or error.code not in TOO_LARGE or told_first:
                raise
            half = (plan.window or plan.tokens_before) // 2
            plan = replace(plan, window=min(half, error.context_window or half))
            halvings += 1


def summarize_with(
    provider: Provider, spent: Callable[[Usage], None], retries: Callable[[], RetryPolicy], *, before: BeforeRequest
) -> Summarize:
    """Return a function that requests summaries from a provider; `spent` receives the usage of each call.

    `before` lets hooks change each request.

    Failed calls are reported to `spent` too. `retries` creates the retry policy of each text. The function also raises
    `RunError`: CONTENT_FILTER if the backend withholds the summary, OUTPUT_LIMIT if it exceeds the maximum answer size,
    EMPTY_RESPONSE if it is empty.
    """

    async def summarise(asked: CompletionRequest) -> SummaryAnswer:
        return await run_with_retries(lambda: once(asked), retries())

    async def once(wanted: CompletionRequest) -> SummaryAnswer:
        asked = await before(wanted)
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
        return SummaryAnswer(_complete(text, stop, model=asked.model), usage)

    return summarise


def _complete(text: str, stop: StopReason | None, *, model: str) -> str:
    """Return the text of an answer that ended with `stop`. Raises `RunError` and `ProviderError` if it failed."""
    if stop is StopReason.CONTENT_FILTER:
        raise RunError("the backend's content filter blocked the summary", code=Code.CONTENT_FILTER)
    if stop is None:
        raise ProviderError(Code.STREAM_TRUNCATED, "the summary ended before it was complete", retryable=True)
    if not strip_marker(text):
        raise RunError(f"{model} returned an empty summary: try again or use another model")
    cut = stop is StopReason.MAX_TOKENS and text.strip()
    return f"{text}\n{CUT_SUMMARY}" if cut else text


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
        turn = plan.turn_start - task.context.start
        self._earlier, in_turn = plan.dropped[:turn], plan.dropped[turn:]
        # The prompt of the turn is sent whatever is dropped: alone, it needs no notes.
        self._in_turn = in_turn if any(render_message(one) for one in in_turn if not is_asked(one)) else ()
        before = parse_summary(task.state.compaction.summary) if task.state.compaction else WrittenNotes()
        continued = bool(self._in_turn) and plan.is_turn_continued
        self._notes, self._prefix = (before.notes, before.prefix) if continued else (before.joined, "")

    async def notes(self) -> str:
        """Return the notes on what was dropped before the split turn; the last ones if nothing was, and they fit."""
        if not self._earlier and text_tokens(self._notes) <= self._plan.most:
            return self._notes
        wanted = self._wanted(FULL_PROMPT, self._plan.most, "compaction")
        return await write_notes(self._earlier, wanted, self._notes, ask=self._ask)

    async def prefix(self) -> str:
        """Return the notes on what was dropped of the split turn; empty if that is nothing but its prompt."""
        if not self._in_turn:
            return ""
        most = self._plan.most // 2 if self._notes or self._earlier else self._plan.most
        wanted = self._wanted(TURN_PREFIX_PROMPT, most, "turnPrefix")
        return await write_notes(self._in_turn, wanted, self._prefix, ask=self._ask)

    def _wanted(self, text: str, most: int, purpose: RequestPurpose) -> SummarySpec:
        return SummarySpec(self.model, self._window, most, text, purpose, self._plan.task.instructions)

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
