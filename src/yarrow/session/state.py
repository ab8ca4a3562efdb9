"""State of a session: its records folded into settings, messages, queued messages and the last compaction."""

from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never, overload

from msgspec import UNSET, Struct, field
from msgspec.structs import asdict, replace

from yarrow.message import Message
from yarrow.session.line import UnknownRecord
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
