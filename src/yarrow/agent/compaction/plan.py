"""Compaction plan: where the context is cut, what is dropped, and the budget of the summary."""

from collections.abc import Sequence

from msgspec import Struct

from yarrow.agent.model_context import Context, ContextBudget, TokenCounter, is_asked, last_asked, message_tokens
from yarrow.config.settings import CompactionSettings
from yarrow.errors import Code, RunError
from yarrow.event.events import CompactionReason, Notice
from yarrow.message import Message, Role
from yarrow.session.state import SessionState
from yarrow.tool.registry import ToolRegistry


class Cut(Struct, frozen=True):
    """A cut before message `first_kept` (possibly the end); `split_turn` is True if it is inside a turn."""

    first_kept: int
    split_turn: bool


class KeepBudget(Struct, frozen=True):
    """Limits on the kept messages, in tokens."""

    keep: int
    """Minimum to keep."""
    limit: int | None
    """Maximum to keep where possible; None for no limit."""
    carried: int = 0
    """Tokens of the user message of the first message's turn; it is kept wherever the cut is."""


def cut(messages: Sequence[Message], sizes: Sequence[int], amount: KeepBudget) -> Cut | None:
    """Return where to cut; None if there is nothing to drop. `sizes` are the tokens of each message.

    Keeps the shortest legal suffix of at least `keep` tokens; if that exceeds `limit`, the longest legal suffix within
    it, or else the shortest one. The last user message is never dropped: if it is not in the suffix, it is sent before
    it and counts towards the limit.
    """
    kept = _kept(sizes)
    enough = next(at for at in reversed(range(len(kept))) if kept[at] >= amount.keep or at == 0)
    legal = _legal(messages)
    before = [at for at in legal if at <= enough]
    chosen = before[-1] if before else 0
    asked = _asked(messages, sizes, amount.carried)
    if amount.limit is not None and kept[chosen] + asked[chosen] > amount.limit:
        fitting = (at for at in legal if at > chosen and kept[at] + asked[at] <= amount.limit)
        chosen = next(fitting, legal[-1] if legal else 0)
    if chosen == 0:
        return None
    return Cut(chosen, split_turn=_inside(messages, chosen))


def _kept(sizes: Sequence[int]) -> list[int]:
    """Return the tokens from each index to the end."""
    kept = [0]
    for size in reversed(sizes):
        kept.append(kept[-1] + size)
    return kept[::-1]


def _legal(messages: Sequence[Message]) -> list[int]:
    """Return the legal cuts in order: before a user or assistant message with a unique id, or at the end."""
    open_until = _open_until(messages)
    names: set[str] = {""}
    legal: list[int] = []
    for at in reversed(range(1, len(messages))):
        message = messages[at]
        # A record names the first kept message by its id, which refers to the last message with that id.
        if message.role is not Role.TOOL and message.id not in names and open_until[at] < at:
            legal.append(at)
        names.add(message.id)
    ends = messages and not is_asked(messages[-1])
    return legal[::-1] + ([len(messages)] if ends else [])


def _open_until(messages: Sequence[Message]) -> list[int]:
    """Return, for each index, the position of the last result that answers an earlier call; -1 if there is none."""
    called: dict[str, int] = {}
    last_result: dict[int, int] = {}
    for at, message in enumerate(messages):
        if message.role is Role.TOOL:
            if message.tool_call_id in called:
                last_result[called[message.tool_call_id]] = at
        else:
            called.update((call.id, at) for call in message.tool_calls)
    open_until, furthest = [-1], -1
    for at in range(len(messages)):
        furthest = max(furthest, last_result.get(at, -1))
        open_until.append(furthest)
    return open_until


def _asked(messages: Sequence[Message], sizes: Sequence[int], carried: int) -> list[int]:
    """Return, for a cut at each index, the tokens of the user message that is sent before the kept messages."""
    asked: list[int] = []
    latest = carried
    for at, message in enumerate(messages):
        asked.append(latest if _inside(messages, at) else 0)
        latest = sizes[at] if is_asked(message) else latest
    return [*asked, latest]


def _inside(messages: Sequence[Message], at: int) -> bool:
    return at == len(messages) or not is_asked(messages[at])


MIN_ANSWER = 256
"""Minimum tokens of the window left for an answer; a request with less does not fit."""
MIN_SUMMARY = 256
"""Minimum summary budget in tokens; a compaction must drop twice as many to be worthwhile."""
REFUTED = 0.75
"""Share of the estimate that is assumed as window after a context overflowed although it should have fitted."""
SUMMARY_SHARE = 0.8
"""Maximum summary size as a share of the reserve."""


class CompactionTask(Struct, frozen=True):
    """A compaction to perform, because the context is too large or the user requested it."""

    state: SessionState
    context: Context
    frame: ContextBudget
    reason: CompactionReason
    registry: ToolRegistry
    """Tools of the session."""
    instructions: str = ""
    """User instructions for the summary."""
    summariser: str = ""
    """Model of the same provider that writes the summary; empty for the session's own."""
    summariser_window: int = 0
    """Context window of that model in tokens; 0 if unknown."""


class CompactionPlan(Struct, frozen=True):
    """A planned compaction; sizes are in tokens."""

    task: CompactionTask
    cut: Cut
    """Position in the session's messages."""
    tokens_before: int
    most: int
    """Maximum size of a summary."""
    listing: int
    """Maximum size of each file list in the summary."""
    window: int
    """Context window of the summarizing model; 0 if unknown."""
    notice: Notice | None = None
    """Notice for the user that fewer tokens are kept than configured."""

    @property
    def dropped(self) -> Sequence[Message]:
        """The messages removed from the context."""
        return self.task.context.messages[self.task.context.start : self.cut.first_kept]

    @property
    def turn_start(self) -> int:
        """Index of the first dropped message of the split turn; that of the first kept message if no turn is split."""
        if not self.cut.split_turn:
            return self.cut.first_kept
        context = self.task.context
        return max(last_asked(context.messages, self.cut.first_kept) or 0, context.start)

    @property
    def is_turn_continued(self) -> bool:
        """True if the last compaction split the same turn."""
        last, context = self.task.state.compaction, self.task.context
        if last is None or not (last.split_turn and self.cut.split_turn):
            return False
        return (last_asked(context.messages, self.cut.first_kept) or 0) < context.start


def plan(task: CompactionTask, meter: TokenCounter) -> CompactionPlan | Notice:
    """Return the plan, or a notice if nothing can be cut and the context fits.

    Raises `RunError` (COMPACTION_INEFFECTIVE) if nothing can be cut and the context does not fit.
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
    """Return the window to fit into; it is reduced if a context overflowed that should have fitted."""
    window = task.frame.window
    if task.reason != "overflow" or 0 < window < before:
        return window
    return int(before * REFUTED)


def _keep_budgets(settings: CompactionSettings, window: int, *, fixed: int) -> tuple[int, int | None, int]:
    """Return the minimum and maximum tokens to keep, and the maximum tokens of the summary.

    If the window is too small for the reserve and the kept messages, the minimum is half of what the reserve leaves. A
    suffix that cannot be split may also use half of the reserve.
    """
    reserve, keep = settings.reserve_tokens, settings.keep_recent_tokens
    most = max(MIN_SUMMARY, int(reserve * SUMMARY_SHARE))
    if not window:
        return keep, None, most
    room = max(0, window - reserve - fixed)
    most = max(MIN_SUMMARY, min(most, room // 4))
    return min(keep, room // 2), max(0, window - reserve // 2 - fixed - most), most


def _cut(task: CompactionTask, meter: TokenCounter, *, keep: int, limit: int | None) -> Cut | None:
    """Return the cut in the session's messages; the context's own start if only its summary can be dropped."""
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
    """Return the tokens freed: the dropped messages, and the part of the current summary that exceeds the limit.

    The prompt of a split turn is not freed: it is sent before the kept messages.
    """
    context, frame = task.context, task.frame
    sizes = meter.sizes(context, frame)
    dropped = sum(sizes[: place.first_kept - context.start])
    asked = last_asked(context.messages, place.first_kept) if place.split_turn else None
    if asked is not None and asked >= context.start:
        dropped -= sizes[asked - context.start]
    summary = message_tokens(context.opening[0]) if context.opening else 0
    return dropped + max(0, meter.scaled(summary, frame) - 2 * most)


def _nothing_to_compact(task: CompactionTask, meter: TokenCounter) -> Notice:
    used = meter.used(task.context, task.frame)
    # If only the server's own count exceeds the window, let the server decide: some count tokens that were not sent.
    least = min(used, meter.estimate(task.context, task.frame))
    if task.reason == "manual" or (task.reason == "auto" and least + MIN_ANSWER <= task.frame.window):
        text = f"nothing to compact yet ({used:,} tokens, all recent)"
        return Notice("NOTHING_TO_COMPACT", text)
    raise ineffective(task, meter)


def ineffective(task: CompactionTask, meter: TokenCounter) -> RunError:
    """Return the error for a context that cannot be made smaller."""
    context, frame = task.context, task.frame
    asked = last_asked(context.messages, len(context.messages))
    fixed = meter.scaled(frame.fixed, frame)
    smallest = fixed + (meter.scaled(message_tokens(context.messages[asked]), frame) if asked is not None else 0)
    used = meter.used(context, frame)
    window = f"has {frame.window:,} tokens" if frame.window else "is unknown"
    return RunError(
        f"cannot shrink the context ({used:,} tokens) to fit {frame.model}: its window {window}, and at least "
        f"{smallest:,} are needed ({fixed:,} for the system prompt and tools). Use a larger model, fewer tools or a "
        "fresh session",
        code=Code.COMPACTION_INEFFECTIVE,
    )


def _keep_shrunk_notice(task: CompactionTask, keep: int) -> Notice | None:
    window, wanted = task.frame.window, task.state.header.compaction.keep_recent_tokens
    if keep >= wanted or task.reason == "overflow":
        return None
    text = f"the context window ({window:,} tokens) is too small to keep {wanted:,} recent tokens; keeping {keep:,}"
    return Notice("KEEP_SHRUNK", text)
