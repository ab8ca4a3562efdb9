"""State of a session, folded from its records, and its statistics."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, assert_never, overload

import msgspec
from msgspec import UNSET, Struct, field
from msgspec.structs import asdict, replace

from yarrow.message import Message, Role, ToolCall, Usage
from yarrow.session.ids import parse_seconds
from yarrow.session.line_codec import UnknownRecord
from yarrow.session.record import (
    Change,
    Compaction,
    Header,
    PermissionAnswered,
    PermissionAsked,
    Queued,
    Record,
    Undelivered,
)


class Messages(Sequence[Message]):
    """Immutable sequence of messages; an extended sequence shares memory with the shorter one."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[Message] = ()) -> None:
        self._items = list(items)
        self._length = len(self._items)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return [self._items[at] for at in range(*index.indices(self._length))]
        return self._items[range(self._length)[index]]

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Messages) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __iter__(self) -> Iterator[Message]:
        return (self._items[at] for at in range(self._length))

    def concat(self, more: Iterable[Message]) -> "Messages":
        """Return the concatenation with `more`, in time linear in `more` unless this was already extended."""
        if len(self._items) > self._length:
            return Messages([*self, *more])
        longer = Messages()
        longer._items = self._items
        longer._items.extend(more)
        longer._length = len(longer._items)
        return longer


class SessionState(Struct, frozen=True):
    """State of a session at one point of its file."""

    header: Header
    """The current header: with all changes applied, and the time of the last record as `updated_at`."""
    messages: Messages = field(default_factory=Messages)
    """All messages, including those replaced by a compaction."""
    queued: tuple[Queued, ...] = ()
    """Accepted messages that are neither delivered nor returned, in order."""
    asked: tuple[PermissionAsked, ...] = ()
    """Unanswered permission requests, in order."""
    compaction: Compaction | None = None
    """The last compaction."""
    compacted_at: int = 0
    """Number of messages before the last compaction."""
    prefix_changed_at: int = 0
    """Number of messages before the context's start last changed: by a compaction, a new system prompt or new tools."""


def changes_prefix(change: Change) -> bool:
    """Return True if a settings change alters the start of what is sent to the model."""
    return change.system_prompt is not UNSET or change.tools is not UNSET


def apply_record(state: SessionState, record: Record | UnknownRecord) -> SessionState:
    """Return the state after one more record, in constant time for a message."""
    return fold_records(state, (record,))


def fold_records(state: SessionState, records: Iterable[Record | UnknownRecord]) -> SessionState:
    """Return the state after more records, in time linear in their number."""
    header, compaction, compacted_at = state.header, state.compaction, state.compacted_at
    updated_at, rebegun_at, known = header.updated_at, state.prefix_changed_at, len(state.messages)
    messages: list[Message] = []
    queued = {text.id: text for text in state.queued}
    asked = {question.id: question for question in state.asked}
    for record in records:
        at = known + len(messages)
        match record:
            case Message():
                messages.append(record)
                queued.pop(record.id, None)
            case Change():
                header = _apply_change(header, record)
                rebegun_at = at if changes_prefix(record) else rebegun_at
            case Compaction():
                compaction, compacted_at, rebegun_at = record, at, at
            case Queued():
                queued[record.id] = record
            case Undelivered():
                queued.pop(record.id, None)
            case PermissionAsked():
                asked[record.id] = record
            case PermissionAnswered():
                asked.pop(record.id, None)
            case Header() | UnknownRecord():  # neither affects the state
                continue
            case _:
                assert_never(record)
        updated_at = max(updated_at, record.timestamp)  # a copy is newer than its source
    return SessionState(
        header=replace(header, updated_at=updated_at),
        messages=state.messages.concat(messages) if messages else state.messages,
        queued=tuple(queued.values()),
        asked=tuple(asked.values()),
        compaction=compaction,
        compacted_at=compacted_at,
        prefix_changed_at=rebegun_at,
    )


def _apply_change(header: Header, change: Change) -> Header:
    given = {name: value for name, value in asdict(change).items() if value is not UNSET and name != "timestamp"}
    return replace(header, **given)


class ModelStats(Struct, frozen=True):
    """Usage of a model, regardless of the provider."""

    name: str
    """Empty for answers that do not name their model."""
    usage: Usage = Usage()
    count: int = 0
    """Number of answers and summaries it wrote, including interrupted ones."""


class ToolStats(Struct, frozen=True):
    """Usage of a tool; calls of an interrupted message were never run and do not count."""

    name: str
    calls: int
    errors: int
    """Number of results that report a failure, denial or abort."""
    seconds: float
    """Total seconds from the message, or the previous result for it, to each result.

    The calls of a message thus add up to the time needed to answer them all; of parallel calls, whose results are
    recorded together, the first gets nearly all of it. Excludes the wait for the user's answers about permission.
    """


class SessionStats(Struct, frozen=True):
    """Statistics of a session."""

    usage: Usage
    """Usage of all recorded model calls: answers, including interrupted ones, and compaction summaries."""
    models: tuple[ModelStats, ...]
    """By name."""
    tools: tuple[ToolStats, ...]
    """By name."""
    compactions: tuple[Compaction, ...]
    """Oldest first."""
    messages: dict[Role, int]
    """Number of messages by role."""
    created: str
    """RFC 3339."""
    updated: str
    """Time of the last record, RFC 3339."""

    @property
    def thinking(self) -> int:
        """Thinking tokens in the output, as far as backends report them."""
        return self.usage.thinking


def compute_stats(header: Header, records: Iterable[Record | UnknownRecord]) -> SessionStats:
    """Return the statistics of a session in linear time; records inherited from another session count too."""
    kept = [record for record in records if not isinstance(record, UnknownRecord)]
    messages = [record for record in kept if isinstance(record, Message)]
    compactions = tuple(record for record in kept if isinstance(record, Compaction))
    answers = [message for message in messages if message.role is Role.ASSISTANT]
    models = count_by_model((*answers, *compactions))
    roles = Counter(message.role for message in messages)
    return SessionStats(
        usage=sum((model.usage for model in models), Usage()),
        models=models,
        tools=_count_by_tool(messages, _sum_waits(kept)),
        compactions=compactions,
        messages={role: roles[role] for role in Role},
        created=header.created_at,
        updated=fold_records(SessionState(header), kept).header.updated_at,
    )


def count_by_model(written: Iterable[Message | Compaction]) -> tuple[ModelStats, ...]:
    """Return the statistics of each model, by name."""
    found: dict[str, ModelStats] = {}
    for record in written:
        known = found.get(record.model) or ModelStats(record.model)
        usage = known.usage + (record.usage or Usage())
        found[record.model] = ModelStats(record.model, usage, known.count + 1)
    return tuple(found[name] for name in sorted(found))


def _sum_waits(records: Iterable[Record]) -> list[int]:
    """Return for each message the total milliseconds until it in which a permission request was open."""
    waits: list[int] = []
    total, start, pending = 0, "", set[str]()
    for record in records:
        match record:
            case PermissionAsked():
                start = start if pending else record.timestamp
                pending.add(record.id)
            case PermissionAnswered() if record.id in pending:
                pending.discard(record.id)
                total += 0 if pending else _elapsed_milliseconds(start, record.timestamp)
            case Message():
                waits.append(total)
                if record.role is Role.ASSISTANT:
                    pending.clear()
            case _:
                pass
    return waits


def _count_by_tool(messages: Sequence[Message], waits: Sequence[int]) -> tuple[ToolStats, ...]:
    """Return the statistics of each tool, by name; `waits` are those of `_sum_waits`."""
    whole = (message for message in messages if message.role is Role.ASSISTANT and not message.incomplete)
    calls = Counter(call.name for message in whole for call in message.tool_calls)
    errors: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    """Milliseconds by tool name."""
    before: dict[int, int] = {}
    """Index of the last result so far, by the index of the message with the calls."""
    for index, asked in match_results(messages).items():
        asking, result = messages[asked.index], messages[index]
        if asking.incomplete:
            continue
        errors[asked.call.name] += result.is_error
        last = before.get(asked.index, asked.index)
        elapsed = _elapsed_milliseconds(messages[last].timestamp, result.timestamp)
        spent[asked.call.name] += max(0, elapsed - (waits[index] - waits[last]))
        before[asked.index] = index
    return tuple(ToolStats(name, calls[name], errors[name], spent[name] / 1000) for name in sorted(calls))


def _elapsed_milliseconds(start: str, end: str) -> int:
    """Return the milliseconds between two times; 0 if one is invalid or the clock was set back."""
    try:
        return max(0, round(1000 * (parse_seconds(end) - parse_seconds(start))))
    except ValueError:
        return 0


class CallPosition(Struct, frozen=True):
    """A call, and the index of the message that contains it."""

    index: int
    call: ToolCall


def match_results(messages: Sequence[Message]) -> dict[int, CallPosition]:
    """Return the call that each result answers, by the result's index; results without a call are omitted.

    A result answers the earliest unanswered call with its id in the latest message that uses this id, since some
    servers restart the numbering of calls with each answer.
    """
    found: dict[int, CallPosition] = {}
    waiting: dict[str, deque[CallPosition]] = {}
    for index, message in enumerate(messages):
        if message.role is Role.TOOL:
            if calls := waiting.get(message.tool_call_id):
                found[index] = calls.popleft()
        elif message.role is Role.ASSISTANT:
            waiting.update((call.id, deque[CallPosition]()) for call in message.tool_calls)
            for call in message.tool_calls:
                waiting[call.id].append(CallPosition(index, call))
    return found


MAX_SUMMARY_CHARACTERS = 200
"""Maximum characters of a call on its line; the rest is truncated."""
_KEY_ARGUMENTS = ("command", "path")


def summarize_tool_call(call: ToolCall) -> str:
    """Return a call's command, path or arguments on one line."""
    try:
        arguments = msgspec.json.decode(call.arguments, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        arguments = {}
    named = next((arguments[name] for name in _KEY_ARGUMENTS if isinstance(arguments.get(name), str)), call.arguments)
    return truncate_to_line(named)


def truncate_to_line(text: str) -> str:
    """Return the start of a text on one line, with a mark if it is truncated."""
    text = text.strip()
    line = " ".join(text[: 8 * MAX_SUMMARY_CHARACTERS].split())
    return (
        line
        if len(line) <= MAX_SUMMARY_CHARACTERS and len(text) <= 8 * MAX_SUMMARY_CHARACTERS
        else f"{line[: MAX_SUMMARY_CHARACTERS - 1]}…"
    )
