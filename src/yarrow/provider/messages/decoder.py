"""Decoder of the messages API's event stream."""

from typing import Any

import msgspec
from msgspec import Struct

from yarrow.message import StopReason
from yarrow.provider.backend_errors import Backend, make_event_error
from yarrow.provider.base import CallPiece, OpaquePiece, ProviderEvent, ThinkingPiece
from yarrow.provider.base_decoder import EventBuffer, FrameDecoder, UsageAccumulator
from yarrow.provider.messages.request import (
    SEPARATOR,
    encode_hidden_thinking,
    encode_redacted_thinking,
    encode_signature,
)
from yarrow.provider.stream_framing import SseDecoder, decode_leniently
from yarrow.provider.tool_calls import OpenCall, ToolCallAssembler


class MessagesDelta(Struct, frozen=True, gc=False):
    """Fields that an event adds to a block, or reports at the end of the message."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class MessagesBlock(Struct, frozen=True, gc=False):
    """A block at its start; some servers send it whole."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw()


class MessagesTokenCounts(Struct, frozen=True, gc=False):
    """Running token totals; `input_tokens` excludes cached ones, `output_tokens` includes thinking."""

    input_tokens: float | None = None
    output_tokens: float | None = None
    cache_read_input_tokens: float | None = None
    cache_creation_input_tokens: float | None = None


class MessagesStart(Struct, frozen=True, gc=False):
    """The message at its start."""

    usage: MessagesTokenCounts | None = None


class MessagesEvent(Struct, frozen=True, gc=False):
    """One event of the stream; `content` and `stop_reason` are set in a message that was not streamed."""

    type: str = ""
    delta: MessagesDelta | None = None
    content_block: MessagesBlock | None = None
    message: MessagesStart | str | None = None
    usage: MessagesTokenCounts | None = None
    error: Any = None
    content: list[MessagesBlock] | None = None
    stop_reason: str | None = None


# Not strict: a number may be a string.
_decode = msgspec.json.Decoder(MessagesEvent, strict=False).decode


def parse_event(data: bytes, backend: Backend) -> MessagesEvent:
    """Return the event; MALFORMED_RESPONSE if the data is not a JSON object of the expected shape."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return decode_leniently(data, _decode, backend=backend, kind="event of a messages stream")


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


class MessagesDecoder(FrameDecoder):
    """Decoder of one answer in the messages format, whose blocks are sequential.

    A call is emitted when the next block starts or a stop reason arrives: only then is it known to be complete.
    """

    def __init__(self, backend: Backend, *, chunk_size: int = 0) -> None:
        self._out = SignedEventBuffer(chunk_size)
        super().__init__(backend, SseDecoder(), self._out)
        self._calls = ToolCallAssembler(backend)
        self._usage = UsageAccumulator()
        self._block = ""
        """Type of the open block."""
        self._call: OpenCall | None = None
        self._signature = ""
        self._reason = ""

    def _take_frame(self, frame: bytes) -> None:
        if frame == b"[DONE]":  # some gateways end every stream this way
            self._end_answer()
            return
        event = parse_event(frame, self._backend)
        if event.error or event.type == "error":
            raise make_event_error(frame, self._backend)
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
                    self._out.add_text(block.text)
            case "thinking":
                self._out.begin_thinking()
                self._signature = block.signature or ""
                if block.thinking:
                    self._out.add_thinking(block.thinking)
            case "redacted_thinking":
                if block.data:
                    self._out.add_event(OpaquePiece(encode_redacted_thinking(block.data)))
            case "tool_use":
                self._call = OpenCall(block.id or "", block.name or "")
                # The arguments come in fragments, or from some servers at once.
                whole = bytes(block.input).decode()
                self._call.fragments = [] if whole in ("", "{}", "null") else [whole]
            case _:
                pass  # a block of a later version, or of a tool that ran on the server

    def _take_delta(self, delta: MessagesDelta) -> None:
        """Process a delta of the open block; other deltas belong to blocks that are ignored."""
        self.progress += bool(delta.text or delta.thinking or delta.partial_json or delta.signature)
        if self._block == "text":
            if delta.text:
                self._out.add_text(delta.text)
        elif self._block == "thinking":
            if delta.thinking:
                self._out.add_thinking(delta.thinking)
            self._signature = delta.signature or self._signature
        elif self._block == "tool_use" and delta.partial_json and self._call is not None:
            self._calls.append(self._call, delta.partial_json)

    def _end_block(self) -> None:
        if self._block == "thinking":
            self._out.end_thinking(self._signature)
        self._block = ""

    def _note_stop(self, reason: str | None) -> None:
        if reason and not self._reason:
            self._reason = reason
            self.complete = True

    def _give_call(self, *, natural: bool) -> None:
        if self._call is None:
            return
        call, self._call = self._call, None
        if made := self._calls.close(call, natural=natural):
            self._out.add_event(CallPiece(made))

    def _end_answer(self) -> None:
        self._check_complete()
        self._end_block()
        self._give_call(natural=self._reason in _NORMAL_STOPS)
        self._out.flush()
        self._finish(self._usage.usage(), self._stop_reason())

    def _stop_reason(self) -> StopReason:
        if self._reason in _NORMAL_STOPS:
            return StopReason.TOOL_USE if self._calls.count else _NORMAL_STOPS[self._reason]
        return _CUT_STOPS.get(self._reason, StopReason.OTHER)


def _add_counts(usage: UsageAccumulator, counts: MessagesTokenCounts | None) -> None:
    if counts is None:
        return
    usage.add("fresh", counts.input_tokens)
    usage.add("output", counts.output_tokens)
    usage.add("cache_read", counts.cache_read_input_tokens)
    usage.add("cache_write", counts.cache_creation_input_tokens)


class SignedEventBuffer(EventBuffer):
    """Buffer that keeps the last delta of thinking until its block ends, so that the signature goes with it."""

    def __init__(self, chunk_size: int) -> None:
        super().__init__(chunk_size)
        self._after_thinking = False

    def begin_thinking(self) -> None:
        """Start a block of thinking; two of them must not be joined into one."""
        self.flush()
        if self._after_thinking and self._opaque is not None:
            self.add_event(OpaquePiece(SEPARATOR))
        self._after_thinking = False

    def end_thinking(self, signature: str) -> None:
        """End a block of thinking; the signature is emitted with the last of its text."""
        if self._pending:
            self._opaque = encode_signature(signature)
            self.flush()
            self._after_thinking = True
        elif signature:
            self.add_event(OpaquePiece(encode_hidden_thinking(signature)))

    def add_event(self, piece: ProviderEvent) -> None:
        """Add a complete piece."""
        super().add_event(piece)
        self._after_thinking = False

    def flush_if_full(self) -> None:
        """Emit the pending text, or all but the last delta of thinking, if it is long enough."""
        if not self._pending or self._size < self._chunk_size:
            return
        if self._opaque is None:
            self.flush()
        elif len(self._pending) > 1:
            *known, last = self._pending
            self._out.append(ThinkingPiece("".join(known)))
            self._pending = [last]
            self._size = len(last)
