"""Plan of a compaction: where the context is cut, what is dropped, and the budget of the summary."""

from collections.abc import Sequence

from msgspec import Struct

from yarrow.agent.context import Context, ContextBudget, TokenCounter, is_asked, last_asked
from yarrow.agent.tokens import message_tokens
from yarrow.config.settings import CompactionSettings
from yarrow.errors import Code, RunError
from yarrow.event.events import CompactionReason, Notice
from yarrow.message import Message, Role
from yarrow.session.state import SessionState
from yarrow.tool.registry import ToolRegistry


class Cut(Struct, frozen=True):
    """What is dropped is before `first_kept`, an index that may be the end; `split_turn` when that is inside a turn."""

    first_kept: int
    split_turn: bool


class KeepBudget(Struct, frozen=True):
    """How much is kept, in tokens."""

    keep: int
    """What is kept at least."""
    limit: int | None
    """What is kept at most where there is a choice; None is no limit."""
    carried: int = 0
    """The user message of the turn that the first message is in the middle of: it is kept whatever is cut."""


def cut(messages: Sequence[Message], sizes: Sequence[int], amount: KeepBudget) -> Cut | None:
    """Return where to cut; None when there is nothing to drop. `sizes` are the tokens of each message.

    Kept is the shortest legal end that holds `keep` tokens; where that is more than `limit`, the longest legal end
    that is not; where there is none, the shortest of all. The last user message is never given up: when it is not
    among what is kept it is sent in front of it, and counts.
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
    """Return where a cut may be, in order: before a user or an assistant message that can be named, or at the end."""
    open_until = _open_until(messages)
    names: set[str] = {""}
    legal: list[int] = []
    for at in reversed(range(1, len(messages))):
        message = messages[at]
        # A record names the first kept message by its id, which means the last message that has it.
        if message.role is not Role.TOOL and message.id not in names and open_until[at] < at:
            legal.append(at)
        names.add(message.id)
    ends = messages and not is_asked(messages[-1])
    return legal[::-1] + ([len(messages)] if ends else [])


def _open_until(messages: Sequence[Message]) -> list[int]:
    """Return, for each index, where the last result stands that answers a call before it; -1 when none does."""
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
    """Return the tokens of the user message that is sent in front of what is kept, for a cut at each index."""
    asked: list[int] = []
    latest = carried
    for at, message in enumerate(messages):
        asked.append(latest if _inside(messages, at) else 0)
        latest = sizes[at] if is_asked(message) else latest
    return [*asked, latest]


def _inside(messages: Sequence[Message], at: int) -> bool:
    return at == len(messages) or not is_asked(messages[at])


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
