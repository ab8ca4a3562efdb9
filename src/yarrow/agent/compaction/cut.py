"""Where a context is cut: what is old enough to be summed up, and never between a call and its results."""

from collections.abc import Sequence

from msgspec import Struct

from yarrow.agent.context import is_asked
from yarrow.message import Message, Role


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
