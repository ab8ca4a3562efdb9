"""Decoder of chat-completions streams to uniform events."""

from collections.abc import Iterable

from yarrow.errors import Code, ProviderError
from yarrow.message import StopReason
from yarrow.provider.backend_errors import Backend, make_event_error
from yarrow.provider.base import CallPiece, OpaquePiece, ProviderEvent, StopPiece, UsagePiece
from yarrow.provider.chat_completions.chunk import ChatDelta, ChatUsage, Choice, TextPart, parse_chunk
from yarrow.provider.chat_completions.opaque_fields import OpaqueFields, get_thinking
from yarrow.provider.chat_completions.tool_calls import ToolCallAssembler
from yarrow.provider.event_buffer import EventBuffer
from yarrow.provider.stream_framing import SseDecoder

_NORMAL_FINISHES = frozenset({"", "stop", "tool_calls", "function_call", "end", "eos"})
"""Finish reasons of a model that ended normally; the empty one is an end mark without a reason."""
_FAILED_FINISHES = frozenset({"error", "insufficient_system_resource"})
_STOP_REASONS = {
    "length": StopReason.MAX_TOKENS,
    "content_filter": StopReason.CONTENT_FILTER,
    "model_context_window_exceeded": StopReason.CONTEXT_WINDOW,
}


class ChatDecoder:
    """Decoder of one answer: call `feed` with what each read of the socket returned, then `end`.

    Deltas of one feed are joined into one piece; with `chunk_size` they are joined further, until a piece has that many
    characters or another kind of event arrives. Calls, usage and the stop come together at the end.
    """

    def __init__(self, backend: Backend, *, chunk_size: int = 0) -> None:
        self.complete = False
        """The answer is complete: a finish reason or the end mark was seen."""
        self.done = False
        """The stop has been emitted, so no more events can come."""
        self.failure: ProviderError | None = None
        """Error that ended the answer; the events before it were returned."""
        self.progress = 0
        """Number of pieces of content so far: text, thinking, parts of calls and usage."""
        self._backend = backend
        self._sse = SseDecoder()
        self._events = EventBuffer(chunk_size)
        self._calls = ToolCallAssembler(backend)
        self._opaque = OpaqueFields()
        self._usage = ChatUsage()
        self._finish_reason = ""

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
        for event in events:
            if self.done or self.failure is not None:
                return
            if event[:1] != b"{" and event.strip() == b"[DONE]":
                self.complete = True
                self._end_answer()
                return
            chunk = parse_chunk(event, self._backend)
            if chunk.error or chunk.object == "error":
                raise make_event_error(event, self._backend)
            self._usage.add(chunk)
            self.progress += chunk.usage is not None
            if chunk.choices:
                self._take_choice(chunk.choices[0])

    def _take_choice(self, choice: Choice) -> None:
        delta = choice.delta or choice.message
        if delta is not None:
            self._take_delta(delta)
        if choice.finish_reason and not self._finish_reason:
            if choice.finish_reason in _FAILED_FINISHES:
                raise make_event_error(f"finish reason {choice.finish_reason}".encode(), self._backend)
            self._finish_reason = choice.finish_reason
            self.complete = True

    def _take_delta(self, delta: ChatDelta) -> None:
        thinking, opaque = get_thinking(delta)
        self.progress += bool(thinking or delta.content or delta.refusal or delta.tool_calls)
        if thinking:
            self._events.add_thinking(thinking, opaque)
        text = delta.content or delta.refusal
        if text:
            self._events.add_text(text if isinstance(text, str) else _join_parts(text))
        if delta.tool_calls:
            for call in delta.tool_calls:
                self._calls.add(call)
        if delta.reasoning_details or delta.thinking_blocks or delta.extra_content or delta.provider_specific_fields:
            self._opaque.add(delta)

    def _end_answer(self) -> None:
        """Emit everything held until the end."""
        if not self.complete:
            sentence = f"{self._backend.name} ended its answer before it was complete"
            raise ProviderError(Code.STREAM_TRUNCATED, sentence, retryable=True)
        self._events.flush()
        natural = self._finish_reason in _NORMAL_FINISHES
        calls = self._calls.finish(natural=natural)
        if opaque := self._opaque.encode():
            self._events.add_event(OpaquePiece(opaque))
        for call in calls:
            self._events.add_event(CallPiece(call))
        if usage := self._usage.usage():
            self._events.add_event(UsagePiece(usage))
        usual = StopReason.TOOL_USE if calls else StopReason.END_TURN
        self._events.add_event(
            StopPiece(usual if natural else _STOP_REASONS.get(self._finish_reason, StopReason.OTHER))
        )
        self.done = True

    def _fail(self, error: ProviderError) -> None:
        self._events.flush()
        self.failure = error


def _join_parts(parts: Iterable[TextPart]) -> str:
    return "".join(part.text for part in parts if part.text)
