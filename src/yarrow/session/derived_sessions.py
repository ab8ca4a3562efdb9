"""Sessions derived from others: branch, fork, rebase, merge and import, as pure functions of loaded sessions.

A derived session has no name, because names identify one session; an imported one keeps its name. Undelivered messages
stay with their original session. A message whose predecessors changed loses its opaque thinking, which providers bind
to them; the readable thinking stays.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import count

from msgspec import UNSET, Struct
from msgspec.structs import replace

from yarrow.config.settings import PermissionMode
from yarrow.errors import InvalidArgument
from yarrow.message import Block, Message, Opaque, Role, Text, Thinking
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
from yarrow.session.session_draft import CopiedRecord, SessionDraft
from yarrow.session.session_file_reader import StoredRecord, StoredSession
from yarrow.session.state import SessionState, changes_prefix, fold_records, match_results

OMITTED_SUMMARY_INTRODUCTION = "Summary of the messages omitted from this session:\n\n"
MERGED_SUMMARY_INTRODUCTION = "Summary of the session merged into this one:\n\n"
_PENDING_RECORDS = (Queued, Undelivered, PermissionAsked, PermissionAnswered)
"""Records of pending items; permission requests and answers belong to their own session."""
MAX_IMPORTED_ID_CHARACTERS = 200
"""Maximum characters kept of an imported session's original id."""


def branch(parent: StoredSession, index: int | None, *, new_id: str, timestamp: str) -> SessionDraft:
    """Return a child with everything up to the message at `index`; its context is the parent's at that point.

    `index` counts messages from 0, or from the end if it is negative; None copies everything. A compaction is included
    if it is before that message. If the branch is between a call and its results, the results up to `index` are
    included; missing ones are supplied when the history is sent to the model. Raises `InvalidArgument`.
    """
    places = [place for place, stored in enumerate(parent.records) if isinstance(stored.value, Message)]
    if index is None:
        return _make_child(parent, parent.records, new_id=new_id, timestamp=timestamp)
    total = len(places)
    if not -total <= index < total:
        from_end = f", or -1 to {-total} from the end" if total else ""
        raise InvalidArgument("index", f"{_describe_missing(index, total)}{from_end}")
    return _make_child(parent, parent.records[: places[index] + 1], new_id=new_id, timestamp=timestamp)


def fork(source: StoredSession, *, new_id: str, timestamp: str) -> SessionDraft:
    """Return a copy of the whole session without a parent."""
    child = _make_child(source, source.records, new_id=new_id, timestamp=timestamp)
    header = replace(child.header, parent_id=None, parent_message_index=None, forked_from=source.header.id)
    return replace(child, header=header)


class RebaseResult(Struct, frozen=True):
    """A session of selected messages."""

    draft: SessionDraft
    added: tuple[int, ...]
    """Indices added to the selection because their calls or results were selected."""


def rebase(
    source: StoredSession, indices: Collection[int], *, new_id: str, timestamp: str, summary: str | None = None
) -> RebaseResult:
    """Return a child of the messages at `indices`, in their original order, with the source's current settings.

    A message with calls and their results are only taken together: selecting one selects all. Compactions are dropped.
    `summary`, of the omitted messages, becomes the first message. Raises `InvalidArgument` if `indices` is empty,
    contains duplicates or is out of range.
    """
    said = _messages(source)
    chosen = _select_indices([message for _, message in said], indices)
    same = range(0) if summary else _find_unchanged(source, chosen)
    first = (
        (_summary_message(f"{new_id}-summary", OMITTED_SUMMARY_INTRODUCTION + summary, timestamp),) if summary else ()
    )
    copies = (
        CopiedRecord(source.path, stored, message if place in same else _drop_signatures(message))
        for place, (stored, message) in enumerate(said[index] for index in chosen)
    )
    header = replace(
        _new_header(_fold_state(source, source.records).header, new_id=new_id, timestamp=timestamp),
        parent_id=source.header.id,
        rebased_from=source.header.id,
    )
    named = set(indices)
    return RebaseResult(
        SessionDraft(header, (*first, *copies), source.path), tuple(at for at in chosen if at not in named)
    )


def find_omitted_messages(source: StoredSession, indices: Collection[int]) -> list[Message]:
    """Return the messages that a rebase on `indices` omits, to be summarized. Raises as `rebase`."""
    messages = [message for _, message in _messages(source)]
    chosen = set(_select_indices(messages, indices))
    return [message for index, message in enumerate(messages) if index not in chosen]


def find_new_messages(current: StoredSession, other: StoredSession) -> list[Message]:
    """Return the messages of `other` after the longest prefix, by message id, that it shares with `current`.

    Raises `InvalidArgument` if there are none, or if both are the same session.
    """
    return [message for _, message in _new_messages(current, other)]


def merge(
    current: StoredSession,
    other: StoredSession,
    *,
    new_id: str,
    synthesis: tuple[Message, Message],
    summary: str | None = None,
) -> SessionDraft:
    """Return a child of `current` that continues with the messages of `other` since their common ancestor.

    Ends with the synthesis, a user and an assistant message; the child's creation time is that of the latter. `summary`
    replaces the messages of `other`. A compaction of `current` stays in force; those of `other` are dropped. A message
    of `other` whose id is in use gets a new one; call ids are kept, since a result answers the last call with its id.
    Raises as `find_new_messages`.
    """
    news = _new_messages(current, other)
    question, answer = synthesis
    child = _make_child(current, current.records, new_id=new_id, timestamp=answer.timestamp)
    if summary is None:
        taken = [*(message.id for _, message in _messages(current)), question.id, answer.id]
        ids = _unique_ids([message.id for _, message in news], taken, new_id)
        brought: Iterable[CopiedRecord | Message] = (
            CopiedRecord(other.path, stored, _with_id(message_id, _drop_signatures(message)))
            for message_id, (stored, message) in zip(ids, news, strict=True)
        )
    else:
        brought = (_summary_message(f"{new_id}-summary", MERGED_SUMMARY_INTRODUCTION + summary, question.timestamp),)
    header = replace(child.header, merged_from=other.header.id)
    return replace(child, header=header, entries=(*child.entries, *brought, question, answer))


def import_copy(loaded: StoredSession, *, new_id: str, cwd: str, timestamp: str) -> SessionDraft:
    """Return a session from an external file, in the project of `cwd`: every record unchanged, without a parent.

    The ids in the file refer to nothing here. The file cannot grant permissions, so automatic approval becomes "ask".
    """
    header = replace(
        loaded.header,
        id=new_id,
        parent_id=None,
        parent_message_index=None,
        imported_from=loaded.header.id[:MAX_IMPORTED_ID_CHARACTERS],
        cwd=cwd,
        permissions=_restrict_mode(loaded.header.permissions),
        created_at=timestamp,
        updated_at=timestamp,
    )
    copies = (CopiedRecord(loaded.path, stored, _drop_auto_permission(stored.value)) for stored in loaded.records)
    return SessionDraft(header, tuple(copies), loaded.path)


def _make_child(parent: StoredSession, records: Sequence[StoredRecord], *, new_id: str, timestamp: str) -> SessionDraft:
    """Return a child with the first `records` of its parent, without undelivered messages."""
    state = _fold_state(parent, records)
    settled = {message.id for message in state.messages}.difference(text.id for text in state.queued)
    entries = tuple(
        CopiedRecord(parent.path, stored, _drop_name(stored.value))
        for stored in records
        if not isinstance(stored.value, _PENDING_RECORDS) or stored.value.id in settled
    )
    header = replace(
        _new_header(state.header, new_id=new_id, timestamp=timestamp),
        parent_id=parent.header.id,
        parent_message_index=len(state.messages) - 1 if state.messages else None,
    )
    return SessionDraft(header, entries, parent.path)


def _fold_state(source: StoredSession, records: Iterable[StoredRecord]) -> SessionState:
    return fold_records(SessionState(source.header), (stored.value for stored in records))


def _new_header(settings: Header, *, new_id: str, timestamp: str) -> Header:
    """Return the header of a new session with the settings of another and no origin."""
    return replace(
        settings,
        id=new_id,
        name="",
        parent_id=None,
        parent_message_index=None,
        forked_from=None,
        rebased_from=None,
        merged_from=None,
        imported_from=None,
        created_at=timestamp,
        updated_at=timestamp,
    )


def _drop_name(value: Record | UnknownRecord) -> Record | UnknownRecord:
    return replace(value, name="") if isinstance(value, Change) and value.name is not UNSET else value


def _drop_auto_permission(value: Record | UnknownRecord) -> Record | UnknownRecord:
    if not isinstance(value, Change) or value.permissions is UNSET:
        return value
    return replace(value, permissions=_restrict_mode(value.permissions))


def _restrict_mode(mode: PermissionMode) -> PermissionMode:
    return PermissionMode.ASK if mode is PermissionMode.AUTO else mode


def _messages(source: StoredSession) -> list[tuple[StoredRecord, Message]]:
    return [(stored, stored.value) for stored in source.records if isinstance(stored.value, Message)]


def _select_indices(messages: Sequence[Message], indices: Collection[int]) -> list[int]:
    """Return the sorted indices, with those of their calls and results."""
    if not indices:
        raise InvalidArgument("indices", "is empty: choose at least one message")
    named: set[int] = set()
    for index in indices:
        if not 0 <= index < len(messages):
            raise InvalidArgument("indices", _describe_missing(index, len(messages)))
        if index in named:
            raise InvalidArgument("indices", f"message {index} is listed twice: choose each once")
        named.add(index)
    calls = match_results(messages)
    asking = {calls[index].index if index in calls else index for index in named}
    return sorted(asking.union(result for result, asked in calls.items() if asked.index in asking))


def _describe_missing(index: int, total: int) -> str:
    counted = f"valid numbers are 0 to {total - 1}" if total else "it is empty"
    return f"this session has no message {index}: {counted}"


def _find_unchanged(source: StoredSession, chosen: Sequence[int]) -> range:
    """Return the positions of the selected messages that still follow the same messages."""
    values = [stored.value for stored in source.records]
    compacted = next((at for at, value in enumerate(values) if isinstance(value, Compaction)), len(values))
    changes = (at for at, value in enumerate(values) if isinstance(value, Change) and changes_prefix(value))
    since, until = (_count_messages(values[:at]) for at in (max(changes, default=0), compacted))
    end = next((place for place, index in enumerate(chosen) if place != index or index >= until), len(chosen))
    return range(since, end)


def _count_messages(values: Sequence[Record | UnknownRecord]) -> int:
    return sum(isinstance(value, Message) for value in values)


def _new_messages(current: StoredSession, other: StoredSession) -> list[tuple[StoredRecord, Message]]:
    if current.header.id == other.header.id:
        raise InvalidArgument("other_session_id", f"cannot merge {other.header.id} into itself: choose another session")
    ours, theirs = _messages(current), _messages(other)
    pairs = enumerate(zip(ours, theirs, strict=False))
    ends = min(len(ours), len(theirs))
    shared = next((at for at, ((_, own), (_, message)) in pairs if own.id != message.id), ends)
    if shared == len(theirs):
        raise InvalidArgument("other_session_id", f"{other.header.id} has no messages that this session lacks")
    return theirs[shared:]


def _unique_ids(ids: Sequence[str], taken: Iterable[str], prefix: str) -> Iterator[str]:
    """Yield the ids; an id already in use is replaced by a new one."""
    used = set(taken)
    own = (f"{prefix}-{number}" for number in count(1))
    known = used.union(ids)
    for message_id in ids:
        chosen = message_id if message_id not in used else next(name for name in own if name not in known)
        used.add(chosen)
        yield chosen


def _with_id(message_id: str, message: Message) -> Message:
    return message if message.id == message_id else replace(message, id=message_id)


def _drop_signatures(message: Message) -> Message:
    """Return a message without the opaque thinking that is bound to earlier messages; other opaque data is kept."""
    content: list[Block] = []
    for block in message.content:
        if isinstance(block, Thinking):
            content.append(Thinking(block.text))
        elif not isinstance(block, Opaque):
            content.append(block)
    return message if tuple(content) == message.content else replace(message, content=tuple(content))


def _summary_message(message_id: str, text: str, timestamp: str) -> Message:
    return Message(id=message_id, role=Role.USER, content=(Text(text),), timestamp=timestamp)
