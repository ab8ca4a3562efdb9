"""Decoder of the messages API's event stream."""

import msgspec

from yarrow.errors import Code, ProviderError
from yarrow.message import StopReason, ToolCall
from yarrow.provider.backend_errors import Backend, make_event_error
from yarrow.provider.base import CallPiece, OpaquePiece, ProviderEvent, StopPiece, TextPiece, ThinkingPiece, UsagePiece
from yarrow.provider.chat_completions.tool_calls import MAX_ARGUMENTS, MAX_CALLS, new_call_id
from yarrow.provider.event_buffer import UsageAccumulator
from yarrow.provider.messages.event import (
    MessagesBlock,
    MessagesDelta,
    MessagesEvent,
    MessagesStart,
    MessagesTokenCounts,
    parse_event,
)
from yarrow.provider.messages.signatures import (
    SEPARATOR,
    encode_hidden_thinking,
    encode_redacted_thinking,
    encode_signature,
)
from yarrow.provider.stream_framing import SseDecoder, is_json_object

_NORMAL_STOPS = {
    "end_turn": StopReason.END_TURN,
    "tool_use": StopReason.END_TURN,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "pause_turn": StopReason.PAUSE,
}
"""Reasons of a model that ended normally, and their meaning if it called no tool."""
_CUT_STOPS = {
    "max_tokens": StopReason.MAX_TOKENS,
    "refusal": StopReason.CONTENT_FILTER,
    "model_context_window_exceeded": StopReason.CONTEXT_WINDOW,
}


class MessagesDecoder:
    """Decoder of one answer: call `feed` with what each read of the socket returned, then `end`.

    Blocks are sequential. Deltas of one feed are joined into one piece; with `chunk_size` they are joined further,
    until a piece has that many characters or another kind of event arrives. A call is emitted when the next block
    starts or a stop reason arrives: only then is it known to be complete.
    """

    def __init__(self, backend: Backend, *, chunk_size: int = 0) -> None:
        self.complete = False
        """The answer is complete: a stop reason was seen."""
        self.done = False
        """The stop has been emitted, so no more events can come."""
        self.failure: ProviderError | None = None
        """Error that ended the answer; the events before it were returned."""
        self.progress = 0
        """Number of pieces of content so far: text, thinking, parts of calls and usage."""
        self._backend = backend
        self._sse = SseDecoder()
        self._events = MessagesEventBuffer(chunk_size)
        self._calls = MessagesCallAssembler(backend)
        self._usage = UsageAccumulator()
        self._block = ""
        """Type of the open block."""
        self._signature = ""
        self._reason = ""

    def feed(self, data: bytes) -> list[ProviderEvent]:
        """Return the events that the bytes complete."""
        try:
            self._take_events(self._sse.feed(data))
        except ProviderError as error:
            self._fail(error)
        self._events.flush_if_full()
        return self._events.take_events()

    def take(self, event: bytes) -> list[ProviderEvent]:
        """Return the events completed by the data of one event, for a body that is not a stream."""
        try:
            self._take_events([event])
        except ProviderError as error:
            self._fail(error)
        return self._events.take_events()

    def end(self) -> list[ProviderEvent]:
        """Return the remaining events at the end of the body; one that ended too early fails with STREAM_TRUNCATED."""
        try:
            self._take_events(self._sse.end())
            if not self.done and self.failure is None:
                self._end_answer()
        except ProviderError as error:
            self._fail(error)
        return self._events.take_events()

    def _take_events(self, events: list[bytes]) -> None:
        for data in events:
            if self.done or self.failure is not None:
                return
            if data == b"[DONE]":  # some gateways end every stream this way
                self._end_answer()
                return
            event = parse_event(data, self._backend)
            if event.error or event.type == "error":
                raise make_event_error(data, self._backend)
            self._take_event(event)

    def _take_event(self, event: MessagesEvent) -> None:
        match event.type:
            case "content_block_delta":
                if event.delta is not None:
                    self._take_delta(event.delta)
            case "content_block_start":
                if event.content_block is not None:
                    self._start_block(event.content_block)
            case "content_block_stop":
                self._end_block()
            case "message_start":
                _add_counts(self._usage, event.message.usage if isinstance(event.message, MessagesStart) else None)
            case "message_delta":
                _add_counts(self._usage, event.usage)
                self._note_stop((event.delta or MessagesDelta()).stop_reason)
            case "message_stop":
                self._end_answer()
            case "message":
                self._take_message(event)
            case _:
                pass  # a ping, or an event of a later version

    def _take_message(self, message: MessagesEvent) -> None:
        """Process a message that was not streamed."""
        for block in message.content or ():
            self._start_block(block)
        _add_counts(self._usage, message.usage)
        self._note_stop(message.stop_reason)

    def _start_block(self, block: MessagesBlock) -> None:
        self.progress += 1
        self._end_block()
        self._give_call(natural=True)
        self._block = block.type
        match block.type:
            case "text":
                if block.text:
                    self._events.add_text(block.text)
            case "thinking":
                self._events.begin_thinking()
                self._signature = block.signature or ""
                if block.thinking:
                    self._events.add_thinking(block.thinking)
            case "redacted_thinking":
                if block.data:
                    self._events.add_event(OpaquePiece(encode_redacted_thinking(block.data)))
            case "tool_use":
                self._calls.begin(block.id or "", block.name or "", block.input)
            case _:
                pass  # a block of a later version, or of a tool that ran on the server

    def _take_delta(self, delta: MessagesDelta) -> None:
        """Process a delta of the open block; other deltas belong to blocks that are ignored."""
        self.progress += bool(delta.text or delta.thinking or delta.partial_json or delta.signature)
        if self._block == "text":
            if delta.text:
                self._events.add_text(delta.text)
        elif self._block == "thinking":
            if delta.thinking:
                self._events.add_thinking(delta.thinking)
            self._signature = delta.signature or self._signature
        elif self._block == "tool_use" and delta.partial_json:
            self._calls.add(delta.partial_json)

    def _end_block(self) -> None:
        if self._block == "thinking":
            self._events.end_thinking(self._signature)
        self._block = ""

    def _note_stop(self, reason: str | None) -> None:
        if reason and not self._reason:
            self._reason = reason
            self.complete = True

    def _give_call(self, *, natural: bool) -> None:
        if call := self._calls.finish(natural=natural):
            self._events.add_event(CallPiece(call))

    def _end_answer(self) -> None:
        """Emit everything held until the end."""
        if not self.complete:
            sentence = f"{self._backend.name} ended its answer before it was complete"
            raise ProviderError(Code.STREAM_TRUNCATED, sentence, retryable=True)
        self._end_block()
        self._give_call(natural=self._reason in _NORMAL_STOPS)
        self._events.flush()
        if usage := self._usage.usage():
            self._events.add_event(UsagePiece(usage))
        self._events.add_event(StopPiece(self._stop_reason()))
        self.done = True

    def _stop_reason(self) -> StopReason:
        if self._reason in _NORMAL_STOPS:
            return StopReason.TOOL_USE if self._calls.count else _NORMAL_STOPS[self._reason]
        return _CUT_STOPS.get(self._reason, StopReason.OTHER)

    def _fail(self, error: ProviderError) -> None:
        self._events.flush()
        self.failure = error


def _add_counts(usage: UsageAccumulator, counts: MessagesTokenCounts | None) -> None:
    if counts is None:
        return
    usage.add("fresh", counts.input_tokens)
    usage.add("output", counts.output_tokens)
    usage.add("cache_read", counts.cache_read_input_tokens)
    usage.add("cache_write", counts.cache_creation_input_tokens)


class MessagesEventBuffer:
    """Outgoing events of one answer; deltas are joined until they contain `chunk_size` characters."""

    def __init__(self, chunk_size: int) -> None:
        self._chunk_size = chunk_size
        self._out: list[ProviderEvent] = []
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._size = 0
        self._after_thought = False

    def add_text(self, text: str) -> None:
        """Add a delta of text."""
        self._texts.append(text)
        self._size += len(text)

    def begin_thinking(self) -> None:
        """Start a block of thinking; two of them must not be joined into one."""
        self._flush_text()
        if self._after_thought:
            self.add_event(OpaquePiece(SEPARATOR))

    def add_thinking(self, text: str) -> None:
        """Add a delta of thinking."""
        self._thoughts.append(text)
        self._size += len(text)

    def end_thinking(self, signature: str) -> None:
        """End a block of thinking; the signature is emitted with the last of its text."""
        text = "".join(self._thoughts)
        self._thoughts.clear()
        self._size = 0
        if text:
            self._out.append(ThinkingPiece(text, encode_signature(signature)))
            self._after_thought = True
        elif signature:
            self.add_event(OpaquePiece(encode_hidden_thinking(signature)))

    def add_event(self, piece: ProviderEvent) -> None:
        """Add a complete piece."""
        self._flush_text()
        self._out.append(piece)
        self._after_thought = False

    def flush_if_full(self) -> None:
        """Emit the pending text if it is long enough; called before waiting for bytes."""
        if self._size < self._chunk_size:
            return
        self._flush_text()
        if len(self._thoughts) > 1:
            *known, last = self._thoughts
            self._out.append(ThinkingPiece("".join(known)))
            self._thoughts = [last]
            self._size = len(last)

    def flush(self) -> None:
        """Emit everything; a pending thought gets no signature."""
        self._flush_text()
        self.end_thinking("")

    def take_events(self) -> list[ProviderEvent]:
        """Return the events since the last call."""
        events = self._out.copy()
        self._out.clear()
        return events

    def _flush_text(self) -> None:
        if self._texts:
            self._out.append(TextPiece("".join(self._texts)))
            self._texts.clear()
            self._size = 0
            self._after_thought = False


class MessagesCallAssembler:
    """Assembler for the calls of one answer, which are sequential."""

    def __init__(self, backend: Backend) -> None:
        self.count = 0
        """Number of calls returned."""
        self._backend = backend
        self._ids: set[str] = set()
        self._size = 0
        self._open = False
        self._id = ""
        self._name = ""
        self._fragments: list[str] = []

    def begin(self, call_id: str, name: str, arguments: msgspec.Raw) -> None:
        """Start a call; its arguments come in fragments, or from some servers at once."""
        self._open = True
        self._id, self._name = call_id, name
        whole = bytes(arguments).decode()
        self._fragments = [] if whole in ("", "{}", "null") else [whole]

    def add(self, fragment: str) -> None:
        """Add a fragment of the current call's arguments."""
        self._fragments.append(fragment)
        self._size += len(fragment)
        if self._size > MAX_ARGUMENTS:
            raise self._refuse(f"tool calls of more than {MAX_ARGUMENTS} characters")

    def finish(self, *, natural: bool) -> ToolCall | None:
        """Return the current call, None if there is none.

        `natural` means that the model continued, or ended normally. If it did not, a call whose arguments are not a
        JSON object was truncated and is dropped; if it did, such a call is kept with its text.
        """
        if not self._open:
            return None
        self._open = False
        arguments = "".join(self._fragments)
        blank = not arguments.strip()
        whole = not blank and is_json_object(arguments)
        if not (natural or whole):
            return None
        if not self._name:
            raise self._refuse("a tool call without a name")
        if self.count == MAX_CALLS:
            raise self._refuse(f"more than {MAX_CALLS} tool calls in one answer")
        self.count += 1
        call_id = self._id if self._id and self._id not in self._ids else new_call_id()
        self._ids.add(call_id)
        if whole or blank:
            return ToolCall(call_id, self._name, arguments if whole else "{}")
        return ToolCall(call_id, self._name, invalid_arguments=arguments)

    def _refuse(self, what: str) -> ProviderError:
        return ProviderError(Code.MALFORMED_TOOL_CALL, f"{self._backend.name} sent {what}", retryable=True)
