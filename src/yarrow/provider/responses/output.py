"""Items of an answer while it is streamed: which item an event belongs to, and what is still missing of it."""

from yarrow.errors import Code, ProviderError
from yarrow.provider.backend_errors import Backend
from yarrow.provider.base import CallPiece, OpaquePiece
from yarrow.provider.base_decoder import EventBuffer
from yarrow.provider.responses.events import OutputItem, ResponseEvent
from yarrow.provider.responses.items import encode_call_mark, encode_message_mark, encode_reasoning
from yarrow.provider.stream_framing import decode_json_object
from yarrow.provider.tool_calls import OpenCall, ToolCallAssembler

MAX_ITEMS = 4096
"""Maximum items of one answer; one more is MALFORMED_RESPONSE."""
PARAGRAPH = "\n\n"
"""Text between two parts of thinking."""


class StreamedItem:
    """An item of the answer, and what has been received of it."""

    def __init__(self, kind: str, index: int | None) -> None:
        self.kind = kind
        self.index = index
        self.item_id = ""
        self.is_announced = False
        """True if the beginning of the item has arrived, not only a part of it."""
        self.is_closed = False
        self.parts: set[int] = set()
        """Indexes of the parts of which some text was emitted."""
        self.thinking = ""
        """Kind of thinking that is emitted: the summary or the original text, not both."""
        self.call = OpenCall()
        self.is_cut = False
        """True if the server marks the item as incomplete."""


class AnswerItems:
    """Items of one answer.

    An event names its item by id, by index, or not at all: some servers give an item another id in each event, and
    some give all items the same index. Text is emitted as it arrives. A call is emitted when the next item begins or
    the answer ends: only then is it known to be complete.
    """

    def __init__(self, backend: Backend, events: EventBuffer) -> None:
        self._backend = backend
        self._events = events
        self._calls = ToolCallAssembler(backend)
        self._items: list[StreamedItem] = []
        self._by_id: dict[str, StreamedItem] = {}
        self._by_index: dict[int, StreamedItem] = {}
        self._held: StreamedItem | None = None
        """The last complete call, which is not emitted yet."""
        self._matched = dict[str, int]()
        """Number of items of each kind that were compared with the final response."""
        self._has_reasoning = False

    @property
    def call_count(self) -> int:
        """Number of calls emitted."""
        return self._calls.count

    # -- deltas ----------------------------------------------------------------------------------------------------

    def add_text(self, event: ResponseEvent, delta: object) -> bool:
        """Add a delta of text; return whether there was any."""
        if not isinstance(delta, str) or not delta:
            return False
        item = self._find_or_open(event, "message")
        if item.is_closed:
            return False
        item.parts.add(event.content_index or 0)
        self._events.add_text(delta)
        return True

    def complete_text(self, event: ResponseEvent, text: object) -> bool:
        """Add the whole text of a part of which no delta arrived; return whether there was any."""
        item = self._find(event, "message")
        if item is not None and (event.content_index or 0) in item.parts:
            return False
        return self.add_text(event, text)

    def add_thinking(self, event: ResponseEvent, delta: object) -> bool:
        """Add a delta of thinking; return whether there was any."""
        if not isinstance(delta, str) or not delta:
            return False
        item = self._find_or_open(event, "reasoning")
        kind, part = _find_thinking_part(event)
        item.thinking = item.thinking or kind
        if item.is_closed or item.thinking != kind:
            return False
        if part not in item.parts:
            self._begin_thinking(item, part)
        self._events.add_thinking(delta)
        return True

    def complete_thinking(self, event: ResponseEvent, text: object) -> bool:
        """Add the whole text of a part of thinking of which no delta arrived; return whether there was any."""
        item, part = self._find(event, "reasoning"), _find_thinking_part(event)[1]
        return (item is None or part not in item.parts) and self.add_thinking(event, text)

    def add_arguments(self, event: ResponseEvent, delta: object) -> bool:
        """Add a fragment of a call's arguments; return whether there was any."""
        if not isinstance(delta, str) or not delta:
            return False
        item = self._find_or_open(event, "function_call")
        if not item.is_closed:
            self._calls.append(item.call, delta)
        return not item.is_closed

    def complete_arguments(self, event: ResponseEvent, arguments: object) -> bool:
        """Replace the fragments of a call's arguments with the whole text; return whether there was any."""
        item = self._find(event, "function_call")
        if item is not None and not item.is_closed and isinstance(arguments, str) and arguments:
            item.call.fragments = [arguments]
            return True
        return False

    # -- items -----------------------------------------------------------------------------------------------------

    def open(self, item: OutputItem, index: int | None) -> None:
        """Begin an item."""
        known = self._find_same(item)
        if known is None or known.is_closed:  # some servers give several items the same id
            # A part of the item may have come before the event that announces it.
            early = self._find_open(item.type, index)
            known = early if early is not None and not early.is_announced else self._begin(item.type, index)
        known.is_announced = True
        self._note(known, item)

    def close(self, item: OutputItem, raw: bytes, index: int | None) -> None:
        """End an item with its final content, of which `raw` is the JSON text."""
        known = self._find_same(item) or self._find_open(item.type, index)
        self._close(known or self._begin(item.type, index), item, raw)

    def close_final(self, item: OutputItem, raw: bytes) -> None:
        """Add an item of the final response, unless it was streamed; call this for each of them in order."""
        number = self._matched[item.type] = self._matched.get(item.type, 0) + 1
        known = self._find_same(item)
        if known is None:
            streamed = [one for one in self._items if one.kind == item.type]
            known = streamed[number - 1] if number <= len(streamed) else self._begin(item.type, None)
        self._close(known, item, raw)

    def finish(self, *, natural: bool) -> None:
        """Emit what is still held; `natural` means that the answer ended normally."""
        for item in self._items:
            if not item.is_closed:
                self._close(item, OutputItem(status="" if natural else "incomplete"), b"")
        self._emit_held(natural=natural)

    def _begin(self, kind: str, index: int | None) -> StreamedItem:
        if len(self._items) == MAX_ITEMS:
            sentence = f"{self._backend.name} sent more than {MAX_ITEMS} items in one answer"
            raise ProviderError(Code.MALFORMED_RESPONSE, sentence, retryable=True)
        self._emit_held(natural=True)
        item = StreamedItem(kind, index)
        self._items.append(item)
        if index is not None:
            self._by_index[index] = item
        self._has_reasoning = self._has_reasoning or kind == "reasoning"
        return item

    def _note(self, known: StreamedItem, item: OutputItem) -> None:
        """Keep what an event says about an item."""
        if item.id:
            known.item_id = item.id
            self._by_id[item.id] = known
        known.call.id = item.call_id or known.call.id
        known.call.name = item.name or known.call.name
        known.is_cut = item.status == "incomplete"
        if arguments := item.arguments_text:
            known.call.fragments = [arguments]

    def _close(self, known: StreamedItem, item: OutputItem, raw: bytes) -> None:
        if known.is_closed:
            return
        self._note(known, item)
        known.is_closed = True
        match known.kind:
            case "message":
                self._close_message(known, item)
            case "reasoning":
                self._close_reasoning(known, item, raw)
            case _:
                self._emit_held(natural=True)
                self._held = known

    def _close_message(self, known: StreamedItem, item: OutputItem) -> None:
        for position, text in enumerate(item.texts):
            if text and position not in known.parts:
                self._events.add_text(text)
        # Only an answer with reasoning needs the id again.
        phase = item.phase or ""
        if known.item_id and (phase or self._has_reasoning):
            self._events.add_event(OpaquePiece(encode_message_mark(known.item_id, phase)))

    def _close_reasoning(self, known: StreamedItem, item: OutputItem, raw: bytes) -> None:
        if not known.parts:
            for position, text in enumerate(item.summaries or filter(None, item.texts)):
                self._begin_thinking(known, position)
                self._events.add_thinking(text)
        if data := encode_reasoning(decode_json_object(raw.decode("utf-8", "replace"))):
            self._events.add_event(OpaquePiece(data))

    def _begin_thinking(self, item: StreamedItem, part: int) -> None:
        if item.parts:
            self._events.add_thinking(PARAGRAPH)
        item.parts.add(part)

    def _emit_held(self, *, natural: bool) -> None:
        if self._held is None:
            return
        held, self._held = self._held, None
        mark = encode_call_mark(held.item_id) if self._has_reasoning else ""
        if made := self._calls.close(held.call, natural=natural and not held.is_cut, opaque=mark):
            self._events.add_event(CallPiece(made))

    # -- which item ------------------------------------------------------------------------------------------------

    def _find_or_open(self, event: ResponseEvent, kind: str) -> StreamedItem:
        found = self._find(event, kind)
        if found is None:
            found = self._begin(kind, event.output_index)
            self._note(found, OutputItem(id=event.item_id))
        return found

    def _find(self, event: ResponseEvent, kind: str) -> StreamedItem | None:
        """Return the item that an event belongs to."""
        known = self._by_id.get(event.item_id or "")
        return known if known is not None and known.kind == kind else self._find_open(kind, event.output_index)

    def _find_open(self, kind: str, index: int | None) -> StreamedItem | None:
        """Return the open item of a kind with an index; without an index, the last one."""
        if index is not None:
            known = self._by_index.get(index)
            return known if known is not None and known.kind == kind and not known.is_closed else None
        return next((one for one in reversed(self._items) if one.kind == kind and not one.is_closed), None)

    def _find_same(self, item: OutputItem) -> StreamedItem | None:
        """Return the item with the same id, or the call with the same id."""
        known = self._by_id.get(item.id or "")
        if known is not None and known.kind == item.type:
            return known
        call_id = item.call_id
        return next((one for one in reversed(self._items) if one.call.id == call_id), None) if call_id else None


def _find_thinking_part(event: ResponseEvent) -> tuple[str, int]:
    """Return the kind of thinking that an event is about, and the index of its part."""
    return event.type.rpartition(".")[0], event.summary_index or event.content_index or 0
