"""Whether a context can be compacted, and how: what is dropped, and how long the summary of it may be."""

from collections.abc import Sequence

from msgspec import Struct

from yarrow.agent.compaction.cut import Cut, KeepBudget, cut
from yarrow.agent.context import Context, ContextBudget, TokenCounter, last_asked
from yarrow.agent.tokens import message_tokens
from yarrow.config.settings import CompactionSettings
from yarrow.errors import Code, RunError
from yarrow.event.events import CompactionReason, Notice
from yarrow.message import Message
from yarrow.session.state import SessionState
from yarrow.tool.registry import ToolRegistry

MIN_ANSWER = 256
"""Tokens of window that must be left for an answer; with less a request does not fit."""
MIN_SUMMARY = 256
"""Tokens that any summary may have. What is dropped must be twice that, or there is nothing to gain."""
REFUTED = 0.75
"""Of the estimate of a context that overflowed though it should have fitted: what is taken for the window."""
SUMMARY_SHARE = 0.8
"""Of the reserve: the most tokens of a summary."""


class CompactionTask(Struct, frozen=True):
    """A context that is too large, or that a person wants smaller."""

    state: SessionState
    context: Context
    frame: ContextBudget
    reason: CompactionReason
    registry: ToolRegistry
    """Tools of the session."""
    instructions: str = ""
    """What the user asks of the summary."""
    summariser: str = ""
    """The model that writes the summary, of the same provider; empty for the session's own."""
    summariser_window: int = 0
    """Of that model; 0 is unknown."""


class CompactionPlan(Struct, frozen=True):
    """What a compaction will do; numbers are tokens."""

    task: CompactionTask
    cut: Cut
    """In the session's messages."""
    tokens_before: int
    most: int
    """Of a summary."""
    listing: int
    """Of each list of files in its text."""
    window: int
    """Of the model that writes it; 0 is unknown."""
    notice: Notice | None = None
    """What a person should be told: less is kept than was set."""

    @property
    def dropped(self) -> Sequence[Message]:
        """The messages that go out of the context."""
        return self.task.context.messages[self.task.context.start : self.cut.first_kept]


def plan(task: CompactionTask, meter: TokenCounter) -> CompactionPlan | Notice:
    """Return what to do, or a notice that nothing can be cut and the context is good as it is.

    Raises `RunError` (COMPACTION_INEFFECTIVE) when nothing can be cut and the context does not fit.
    """
    before = meter.estimate(task.context, task.frame)
    settings = task.state.header.compaction
    window = _window(task, before)
    keep, limit, most = _keep_budgets(settings, window, fixed=meter.scaled(task.frame.fixed, task.frame))
    place = _cut(task, meter, keep=keep, limit=limit)
    gain = 0 if place is None else _tokens_freed(task, meter, place, most=most)
    if place is None or gain < 2 * MIN_SUMMARY:
        return _nothing_to_compact(task, meter)
    own = task.summariser in ("", task.frame.model)
    return CompactionPlan(
        task,
        place,
        tokens_before=before,
        most=min(most, gain // 2),
        listing=max(most // 4, window // 32),
        window=window if own else task.summariser_window,
        notice=_keep_shrunk_notice(task, keep),
    )


def _window(task: CompactionTask, before: int) -> int:
    """Return the window to fit into; when what should have fitted overflowed, the window is not what we believed."""
    window = task.frame.window
    if task.reason != "overflow" or 0 < window < before:
        return window
    return int(before * REFUTED)


def _keep_budgets(settings: CompactionSettings, window: int, *, fixed: int) -> tuple[int, int | None, int]:
    """Return the tokens to keep at least, to keep at most, and of the summary at most.

    In a window that is too small for reserve and kept messages together, half of what the reserve leaves is kept.
    What cannot be parted may take half of the reserve too, before it is given up.
    """
    reserve, keep = settings.reserve_tokens, settings.keep_recent_tokens
    most = max(MIN_SUMMARY, int(reserve * SUMMARY_SHARE))
    if not window:
        return keep, None, most
    room = max(0, window - reserve - fixed)
    most = max(MIN_SUMMARY, min(most, room // 4))
    return min(keep, room // 2), max(0, window - reserve // 2 - fixed - most), most


def _cut(task: CompactionTask, meter: TokenCounter, *, keep: int, limit: int | None) -> Cut | None:
    """Return where to cut the session's messages; where the context begins already, when only its summary can go."""
    context, frame = task.context, task.frame
    asked = last_asked(context.messages, context.start)
    carried = 0 if asked is None else meter.scaled(message_tokens(context.messages[asked]), frame)
    messages = context.messages[context.start :]
    place = cut(messages, meter.sizes(context, frame), KeepBudget(keep, limit, carried))
    if place is not None:
        return Cut(context.start + place.first_kept, place.split_turn)
    names = [message.id for message in messages]
    nameable = bool(names) and bool(names[0]) and names[0] not in names[1:]
    return Cut(context.start, split_turn=len(context.opening) > 1) if context.opening and nameable else None


def _tokens_freed(task: CompactionTask, meter: TokenCounter, place: Cut, *, most: int) -> int:
    """Return the tokens that go: of the messages, and of a summary that is longer than one may be here."""
    context, frame = task.context, task.frame
    dropped = sum(meter.sizes(context, frame)[: place.first_kept - context.start])
    summary = message_tokens(context.opening[0]) if context.opening else 0
    return dropped + max(0, meter.scaled(summary, frame) - 2 * most)


def _nothing_to_compact(task: CompactionTask, meter: TokenCounter) -> Notice:
    used = meter.used(task.context, task.frame)
    # What only the server's own count says is too large is left to it to refuse: some count what was not sent.
    least = min(used, meter.estimate(task.context, task.frame))
    if task.reason == "manual" or (task.reason == "auto" and least + MIN_ANSWER <= task.frame.window):
        text = f"nothing can be compacted: the context has {used:,} tokens, all of it recent"
        return Notice("NOTHING_TO_COMPACT", text)
    raise ineffective(task, meter)


def ineffective(task: CompactionTask, meter: TokenCounter) -> RunError:
    """Return the error of a context that cannot be made smaller."""
    context, frame = task.context, task.frame
    asked = last_asked(context.messages, len(context.messages))
    fixed = meter.scaled(frame.fixed, frame)
    smallest = fixed + (meter.scaled(message_tokens(context.messages[asked]), frame) if asked is not None else 0)
    used = meter.used(context, frame)
    window = f"has {frame.window:,} tokens" if frame.window else "is not known"
    return RunError(
        f"the context of {used:,} tokens cannot be made smaller for {frame.model}: its window {window}, "
        f"the system prompt and the tool schemas take {fixed:,}, and the smallest context possible is "
        f"{smallest:,}; use a model with a larger window, offer fewer tools or start another session",
        code=Code.COMPACTION_INEFFECTIVE,
    )


def _keep_shrunk_notice(task: CompactionTask, keep: int) -> Notice | None:
    window, wanted = task.frame.window, task.state.header.compaction.keep_recent_tokens
    if keep >= wanted or task.reason == "overflow":
        return None
    text = f"the window of {window:,} tokens is too small to keep {wanted:,} recent tokens: {keep:,} are kept"
    return Notice("KEEP_SHRUNK", text)
