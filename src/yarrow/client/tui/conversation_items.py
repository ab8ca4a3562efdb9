"""History of a conversation: items, and the reducer from events to items."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from yarrow.client.bang_command import format_bang
from yarrow.client.run_event_notes import format_event_note, is_not_run
from yarrow.client.session_lookup import join_text, make_tool_output
from yarrow.v1 import agent_pb2 as pb

CallState = Literal["waiting", "running", "asked", "done", "failed", "refused"]
NoteKind = Literal["notice", "retry", "error", "compaction", "command", "allowed", "denied"]


class TextItem(Struct, frozen=True):
    """Text of the user or of the model."""

    text: str
    done: bool = True


class ThinkingItem(Struct, frozen=True):
    """Thinking of the model."""

    text: str
    done: bool = True


class CallItem(Struct, frozen=True):
    """A tool call and its outcome."""

    id: str
    name: str
    arguments_json: str = ""
    invalid: str = ""
    """The arguments as received, if they are not a JSON object."""
    state: CallState = "waiting"
    tail: str = ""
    """End of the output of a running tool."""
    output: str = ""
    diff: str = ""
    verdict: str = ""
    """Line about a denied permission, which is shown instead of the call; empty if none was denied."""

    @property
    def done(self) -> bool:
        """True once the call has a result."""
        return self.state in {"done", "failed", "refused"}


class NoteItem(Struct, frozen=True):
    """A note for the user outside of messages and calls."""

    kind: NoteKind
    text: str
    done: bool = True


Item = TextItem | ThinkingItem | CallItem | NoteItem


class HistoryEntry(Struct, frozen=True):
    """Items of one side of the conversation, in order of arrival."""

    key: str
    """Id of the message; empty if there is none."""
    role: Literal["user", "assistant", "note"]
    items: tuple[Item, ...] = ()


class SessionHistory(Struct, frozen=True):
    """All entries. Only the open one grows, so that the cost of an event does not depend on their number."""

    closed: tuple[HistoryEntry, ...] = ()
    open: HistoryEntry | None = None
    held: tuple[NoteItem, ...] = ()
    """Notes that arrived while text was streamed; they are printed between its blocks, at the latest below it."""


MAX_TAIL_CHARACTERS = 4_096
"""Maximum characters kept of a running tool's output, its end; the result contains the whole output."""
_NOTE_KINDS: dict[str, NoteKind] = {
    "notice": "notice",
    "retry_scheduled": "retry",
    "compaction_start": "compaction",
    "compaction_end": "compaction",
}
_ABORTED = "Run interrupted"


def reduce_history(history: SessionHistory, events: Sequence[pb.AgentEvent]) -> SessionHistory:
    """Return the history after some events; adjacent pieces of a text are joined first, in one step."""
    for kind, group in groupby(events, key=lambda event: event.WhichOneof("event") or ""):
        same = list(group)
        match kind:
            case "text_delta":
                history = _append_text(history, TextItem, "".join(event.text_delta.text for event in same))
            case "thinking_delta":
                history = _append_text(history, ThinkingItem, "".join(event.thinking_delta.text for event in same))
            case _:
                for event in same:
                    history = _apply(history, event, kind)
    return history


def make_history(messages: Iterable[pb.Message]) -> SessionHistory:
    """Return the history of recorded messages."""
    history = SessionHistory()
    for message in messages:
        match message.role:
            case pb.ROLE_USER:
                text = _format_text(message)
                history = _add_user(history, message.id, format_bang(message.typed, text) or text)
            case pb.ROLE_ASSISTANT:
                history = replace(close_entry(history), open=_make_entry(message))
            case pb.ROLE_TOOL:
                history = _end_call(history, make_tool_output(message, _format_text(message)))
            case _:
                continue
    return close_entry(history)


def close_entry(history: SessionHistory) -> SessionHistory:
    """Return the history without an open entry."""
    if history.open is None:
        return SessionHistory((*history.closed, *(HistoryEntry("", "note", (note,)) for note in history.held)))
    entry = replace(history.open, items=(*map(_finish, history.open.items), *history.held))
    return SessionHistory((*history.closed, entry) if entry.items else history.closed)


def add_note(history: SessionHistory, kind: NoteKind, text: str) -> SessionHistory:
    """Return the history with a note at its end; a note that arrives while text is streamed is held."""
    note = NoteItem(kind, text)
    entry = history.open
    if entry is None:
        return replace(history, closed=(*history.closed, HistoryEntry("", "note", (note,))))
    if entry.items and _is_streaming(entry.items[-1]):
        return replace(history, held=(*history.held, note))
    return replace(history, open=replace(entry, items=(*entry.items, note)))


def add_denial(history: SessionHistory, call_id: str, verdict: str) -> SessionHistory:
    """Return the history with a denial shown in place of its call, or as a note if the call is not shown."""
    if _find_call(history, call_id) is None:
        return add_note(history, "denied", verdict)
    return _update_call(history, call_id, verdict=verdict)


def add_command(history: SessionHistory, command: str) -> SessionHistory:
    """Return the history with a command that the user runs; its output follows."""
    return _add_user(history, "", command)


def _apply(history: SessionHistory, event: pb.AgentEvent, kind: str) -> SessionHistory:
    match kind:
        case "agent_start":
            return _begin_run(history, event.agent_start)
        case "turn_start":
            for text in event.turn_start.delivered:
                history = _add_user(history, text.message_id, text.typed or text.text)
            return history
        case "message_start":
            return replace(close_entry(history), open=HistoryEntry(event.message_start.message_id, "assistant"))
        case "tool_call":
            call = event.tool_call
            return _add_item(history, CallItem(call.id, call.name, call.arguments_json, call.invalid_arguments))
        case "message_end":
            return _end_message(history)
        case "tool_delta":
            return _append_output(history, event.tool_delta)
        case "permission_request":
            return _update_call(history, event.permission_request.tool_call_id, state="asked")
        case "tool_output":
            return _end_call(history, event.tool_output)
        case "turn_end":
            return close_entry(history)
        case "agent_end":
            return _end_run(close_entry(history), event.agent_end)
        case "gap":
            return add_note(history, "notice", "Some output was missed. /reload redraws the session.")
        case _ if note := format_event_note(event, kind):
            return add_note(history, _NOTE_KINDS.get(kind, "notice"), note.removeprefix("yarrow: "))
        case _:
            return history


def _begin_run(history: SessionHistory, start: pb.AgentStart) -> SessionHistory:
    """Return the history with a run that starts; a replayed run replaces what was recorded of it."""
    known = [index for index, entry in enumerate(history.closed) if entry.key == start.message_id]
    if known:
        history = SessionHistory(history.closed[: known[-1]], held=history.held)
    return _add_user(history, start.message_id, start.typed or start.text)


def _append_text(history: SessionHistory, kind: type[TextItem] | type[ThinkingItem], text: str) -> SessionHistory:
    entry = history.open
    if entry and entry.items and isinstance(last := entry.items[-1], kind) and not last.done:
        return replace(history, open=replace(entry, items=(*entry.items[:-1], replace(last, text=last.text + text))))
    return _add_item(history, kind(text, done=False))


def _add_item(history: SessionHistory, item: Item) -> SessionHistory:
    """Return the history with an item at the end of the open entry; all text before it is complete."""
    entry = history.open or HistoryEntry("", "assistant")
    items = (*map(_seal, entry.items), *history.held, item)
    return replace(history, open=replace(entry, items=items), held=())


def _add_user(history: SessionHistory, key: str, text: str) -> SessionHistory:
    history = close_entry(history)
    return replace(history, closed=(*history.closed, HistoryEntry(key, "user", (TextItem(text),))))


def _end_message(history: SessionHistory) -> SessionHistory:
    """Return the history with its message complete; the calls of the message continue."""
    if history.open is None:
        return history
    items = (*map(_seal, history.open.items), *history.held)
    return replace(history, open=replace(history.open, items=items), held=())


def _append_output(history: SessionHistory, delta: pb.ToolDelta) -> SessionHistory:
    history = _ensure_call(history, delta.tool_call_id, "")
    item = _find_call(history, delta.tool_call_id)
    tail = ((item.tail if item else "") + delta.text)[-MAX_TAIL_CHARACTERS:]
    return _update_call(history, delta.tool_call_id, state="running", tail=tail)


def _end_call(history: SessionHistory, output: pb.ToolOutput) -> SessionHistory:
    history = _ensure_call(history, output.tool_call_id, output.name)
    state = "refused" if is_not_run(output) else "failed" if output.is_error else "done"
    return _update_call(
        history, output.tool_call_id, state=state, name=output.name, tail="", output=output.text, diff=output.diff
    )


def _ensure_call(history: SessionHistory, call_id: str, name: str) -> SessionHistory:
    """Return the history with a call that no event announced: one of the user, or one after a gap."""
    return history if _find_call(history, call_id) else _add_item(history, CallItem(call_id, name))


def _end_run(history: SessionHistory, end: pb.AgentEnd) -> SessionHistory:
    if end.HasField("error"):
        history = add_note(
            history, "error", f"{end.error.code}: {end.error.message}" if end.error.code else end.error.message
        )
    elif end.reason == pb.END_REASON_ABORTED:
        history = add_note(history, "notice", _ABORTED)
    for text in end.undelivered:
        history = add_note(history, "notice", f"Not sent: {text.typed or text.text}")
    return history


def _find_call(history: SessionHistory, call_id: str) -> CallItem | None:
    for item in history.open.items if history.open else ():
        if isinstance(item, CallItem) and item.id == call_id:
            return item
    return None


def _update_call(history: SessionHistory, call_id: str, **changes: str) -> SessionHistory:
    if history.open is None or _find_call(history, call_id) is None:
        return history
    items = tuple(
        replace(item, **changes) if isinstance(item, CallItem) and item.id == call_id else item
        for item in history.open.items
    )
    return replace(history, open=replace(history.open, items=items))


def _is_streaming(item: Item) -> bool:
    """Return whether the item is a text that is being streamed."""
    return isinstance(item, TextItem | ThinkingItem) and not item.done


def _seal(item: Item) -> Item:
    """Return an item to which nothing is added any more; only its result completes a call."""
    return replace(item, done=True) if isinstance(item, TextItem | ThinkingItem) and not item.done else item


def _finish(item: Item) -> Item:
    """Return an item in its final form; a call without a result was not run."""
    if isinstance(item, CallItem) and not item.done:
        return replace(item, state="failed", output="no result")
    return _seal(item)


def _make_entry(message: pb.Message) -> HistoryEntry:
    items: list[Item] = []
    for block in message.content:
        match block.WhichOneof("block"):
            case "text":
                items.append(TextItem(block.text.text))
            case "thinking":
                items.append(ThinkingItem(block.thinking.text))
            case "tool_call":
                call = block.tool_call
                items.append(CallItem(call.id, call.name, call.arguments_json, call.invalid_arguments))
            case _:
                continue
    return HistoryEntry(message.id, "assistant", tuple(items))


def _format_text(message: pb.Message) -> str:
    """Return the text of a message; a message with an image but no text is `[image]`."""
    has_image = any(block.HasField("image") for block in message.content)
    return join_text(message) or ("[image]" if has_image else "")
