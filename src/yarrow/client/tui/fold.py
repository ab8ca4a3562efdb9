"""Turns the events of a session, or its recorded messages, into the history that a person sees."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from msgspec.structs import replace

from yarrow.client.by_hand import line_of
from yarrow.client.notes import side_note
from yarrow.client.tui.history import CallItem, Entry, History, Item, NoteItem, NoteKind, TextItem, ThinkingItem
from yarrow.v1 import agent_pb2 as pb

TAIL_CHARACTERS = 4_096
"""Of a running tool's output; of more, the end is kept. The whole comes with its result."""
_NOTES: dict[str, NoteKind] = {
    "notice": "notice",
    "retry_scheduled": "retry",
    "compaction_start": "compaction",
    "compaction_end": "compaction",
}
_ABORTED = "aborted"


def fold(history: History, events: Sequence[pb.AgentEvent]) -> History:
    """Return the history after some events. Neighbouring pieces of a text are joined first, once for all of them."""
    for kind, group in groupby(events, key=lambda event: event.WhichOneof("event") or ""):
        same = list(group)
        match kind:
            case "text_delta":
                history = _grown(history, TextItem, "".join(event.text_delta.text for event in same))
            case "thinking_delta":
                history = _grown(history, ThinkingItem, "".join(event.thinking_delta.text for event in same))
            case _:
                for event in same:
                    history = _after(history, event, kind)
    return history


def from_messages(messages: Iterable[pb.Message]) -> History:
    """Return the history that recorded messages make."""
    history = History()
    for message in messages:
        match message.role:
            case pb.ROLE_USER:
                history = _said(history, message.id, line_of(message.typed, _text(message)) or _text(message))
            case pb.ROLE_ASSISTANT:
                history = replace(close(history), open=_recorded(message))
            case pb.ROLE_TOOL:
                history = _answered(history, _output(message))
            case _:
                continue
    return close(history)


def close(history: History) -> History:
    """Return the history with nothing open in it."""
    if history.open is None:
        return History((*history.closed, *(Entry("", "note", (note,)) for note in history.held)))
    entry = replace(history.open, items=(*map(_finished, history.open.items), *history.held))
    return History((*history.closed, entry) if entry.items else history.closed)


def noted(history: History, kind: NoteKind, text: str) -> History:
    """Return the history with a note at its end; one that comes within a text waits until that is whole."""
    note = NoteItem(kind, text)
    entry = history.open
    if entry is None:
        return replace(history, closed=(*history.closed, Entry("", "note", (note,))))
    if entry.items and _grows(entry.items[-1]):
        return replace(history, held=(*history.held, note))
    return replace(history, open=replace(entry, items=(*entry.items, note)))


def called(history: History, command: str) -> History:
    """Return the history with a command that a person runs; what comes of it follows."""
    return _said(history, "", command)


def _after(history: History, event: pb.AgentEvent, kind: str) -> History:
    match kind:
        case "agent_start":
            return _begun(history, event.agent_start)
        case "turn_start":
            for text in event.turn_start.delivered:
                history = _said(history, text.message_id, text.typed or text.text)
            return history
        case "message_start":
            return replace(close(history), open=Entry(event.message_start.message_id, "assistant"))
        case "tool_call":
            call = event.tool_call
            return _with(history, CallItem(call.id, call.name, call.arguments_json, call.invalid_arguments))
        case "message_end":
            return _ended(history)
        case "tool_delta":
            return _running(history, event.tool_delta)
        case "permission_request":
            return _changed(history, event.permission_request.tool_call_id, state="asked")
        case "tool_output":
            return _answered(history, event.tool_output)
        case "turn_end":
            return close(history)
        case "agent_end":
            return _over(close(history), event.agent_end)
        case "gap":
            return noted(history, "notice", "events were missed: what is shown may lack a part, /reload shows it all")
        case _ if note := side_note(event, kind):
            return noted(history, _NOTES.get(kind, "notice"), note.removeprefix("yarrow: "))
        case _:
            return history


def _begun(history: History, start: pb.AgentStart) -> History:
    """Return the history with a run that begins; one that is told anew takes the place of what was recorded of it."""
    known = [index for index, entry in enumerate(history.closed) if entry.key == start.message_id]
    if known:
        history = History(history.closed[: known[-1]], held=history.held)
    return _said(history, start.message_id, start.typed or start.text)


def _grown(history: History, kind: type[TextItem] | type[ThinkingItem], text: str) -> History:
    entry = history.open
    if entry and entry.items and isinstance(last := entry.items[-1], kind) and not last.done:
        return replace(history, open=replace(entry, items=(*entry.items[:-1], replace(last, text=last.text + text))))
    return _with(history, kind(text, done=False))


def _with(history: History, item: Item) -> History:
    """Return the history with an item at the end of what is open; whatever was said before it is said out."""
    entry = history.open or Entry("", "assistant")
    items = (*map(_said_out, entry.items), *history.held, item)
    return replace(history, open=replace(entry, items=items), held=())


def _said(history: History, key: str, text: str) -> History:
    history = close(history)
    return replace(history, closed=(*history.closed, Entry(key, "user", (TextItem(text),))))


def _ended(history: History) -> History:
    """Return the history with a message that is said out; its calls go on."""
    if history.open is None:
        return history
    items = (*map(_said_out, history.open.items), *history.held)
    return replace(history, open=replace(history.open, items=items), held=())


def _running(history: History, delta: pb.ToolDelta) -> History:
    history = _known(history, delta.tool_call_id, "")
    item = _call(history, delta.tool_call_id)
    tail = ((item.tail if item else "") + delta.text)[-TAIL_CHARACTERS:]
    return _changed(history, delta.tool_call_id, state="running", tail=tail)


def _answered(history: History, output: pb.ToolOutput) -> History:
    history = _known(history, output.tool_call_id, output.name)
    state = "failed" if output.is_error else "done"
    return _changed(
        history, output.tool_call_id, state=state, name=output.name, tail="", output=output.text, diff=output.diff
    )


def _known(history: History, call_id: str, name: str) -> History:
    """Return the history with a call of which nothing was told before: a person's, or one after a gap."""
    return history if _call(history, call_id) else _with(history, CallItem(call_id, name))


def _over(history: History, end: pb.AgentEnd) -> History:
    if end.HasField("error"):
        history = noted(
            history, "error", f"{end.error.code}: {end.error.message}" if end.error.code else end.error.message
        )
    elif end.reason == pb.END_REASON_ABORTED:
        history = noted(history, "notice", _ABORTED)
    for text in end.undelivered:
        history = noted(history, "notice", f"not delivered: {text.typed or text.text}")
    return history


def _call(history: History, call_id: str) -> CallItem | None:
    for item in history.open.items if history.open else ():
        if isinstance(item, CallItem) and item.id == call_id:
            return item
    return None


def _changed(history: History, call_id: str, **changes: str) -> History:
    if history.open is None or _call(history, call_id) is None:
        return history
    items = tuple(
        replace(item, **changes) if isinstance(item, CallItem) and item.id == call_id else item
        for item in history.open.items
    )
    return replace(history, open=replace(history.open, items=items))


def _grows(item: Item) -> bool:
    """Whether a text is being written there."""
    return isinstance(item, TextItem | ThinkingItem) and not item.done


def _said_out(item: Item) -> Item:
    """Return an item to which nothing is added any more; a call is finished by its result alone."""
    return replace(item, done=True) if isinstance(item, TextItem | ThinkingItem) and not item.done else item


def _finished(item: Item) -> Item:
    """Return an item as it stays; a call without a result was not run."""
    if isinstance(item, CallItem) and not item.done:
        return replace(item, state="failed", output="no result")
    return _said_out(item)


def _recorded(message: pb.Message) -> Entry:
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
    return Entry(message.id, "assistant", tuple(items))


def _output(message: pb.Message) -> pb.ToolOutput:
    return pb.ToolOutput(
        tool_call_id=message.tool_call_id,
        name=message.tool_name,
        text=_text(message),
        is_error=message.is_error,
        diff=message.diff,
        message_id=message.id,
    )


def _text(message: pb.Message) -> str:
    """Return the text of a message; an image stands in it as a word."""
    return "".join(block.text.text if block.HasField("text") else "" for block in message.content) or (
        "[image]" if any(block.HasField("image") for block in message.content) else ""
    )
