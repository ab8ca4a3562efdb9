"""Decodes the bytes of a messages stream into the uniform events."""

from yarrow.errors import Code, ProviderError
from yarrow.message import StopReason
from yarrow.provider.backend_errors import Backend, make_event_error
from yarrow.provider.base import CallPiece, OpaquePiece, ProviderEvent, StopPiece, UsagePiece
from yarrow.provider.messages.event import (
    MessagesBlock,
    MessagesDelta,
    MessagesEvent,
    MessagesStart,
    MessagesTokenCounts,
    parse_event,
)
from yarrow.provider.messages.event_buffer import MessagesEventBuffer
from yarrow.provider.messages.signatures import encode_redacted_thinking
from yarrow.provider.messages.tool_calls import MessagesCallAssembler
from yarrow.provider.sse import SseDecoder
from yarrow.provider.usage import UsageAccumulator

_NORMAL_STOPS = {
    "end_turn": StopReason.END_TURN,
    "tool_use": StopReason.END_TURN,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "pause_turn": StopReason.PAUSE,
}
"""Reasons of a model that ended where it wanted to, and what they mean when it named no tool."""
_CUT_STOPS = {
    "max_tokens": StopReason.MAX_TOKENS,
    "refusal": StopReason.CONTENT_FILTER,
    "model_context_window_exceeded": StopReason.CONTEXT_WINDOW,
}


class MessagesDecoder:
    """One answer: `feed` it what each read of the socket brought, then `end` it.

    Blocks come one after the other. Deltas of one feed are joined into one piece; with `chunk_size` they are joined
    further, until a piece has that many characters or another kind of event comes. A call is given when the next
    block begins or a stop reason comes: only then it is known that it was not cut.
    """

    def __init__(self, backend: Backend, *, chunk_size: int = 0) -> None:
        self.complete = False
        """Whether the answer is whole: a stop reason was seen."""
        self.done = False
        """Whether the stop was given, so that nothing more can come."""
        self.failure: ProviderError | None = None
        """Why nothing more comes; what came before it was given."""
        self.progress = 0
        """Number of pieces of content so far: text, thinking, parts of calls and usage."""
        self._backend = backend
        self._sse = SseDecoder()
        self._events = MessagesEventBuffer(chunk_size)
        self._calls = MessagesCallAssembler(backend)
        self._usage = UsageAccumulator()
        self._block = ""
        """The type of the block that is open."""
        self._signature = ""
        self._reason = ""

    def feed(self, data: bytes) -> list[ProviderEvent]:
        """Return what the bytes complete."""
        try:
            self._take_events(self._sse.feed(data))
        except ProviderError as error:
            self._fail(error)
        self._events.flush_if_full()
        return self._events.take_events()

    def take(self, event: bytes) -> list[ProviderEvent]:
        """Return what the data of one event completes, for a body that was not a stream."""
        try:
            self._take_events([event])
        except ProviderError as error:
            self._fail(error)
        return self._events.take_events()

    def end(self) -> list[ProviderEvent]:
        """Return the rest at the end of the body; one that ended too early is the failure STREAM_TRUNCATED."""
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
            if data == b"[DONE]":  # some gateways end every stream like that
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
        """Take a message that was not streamed."""
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
        """Take a delta that fits the open block; others belong to blocks that are passed over."""
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
        """Give everything that waited for the end."""
        if not self.complete:
            sentence = f"{self._backend.name} ended its answer before it was whole"
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
