"""Decoder of Ollama's NDJSON stream."""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from yarrow.errors import ProviderError
from yarrow.message import StopReason, ToolCall, Usage
from yarrow.provider.backend_errors import Backend, make_event_error
from yarrow.provider.base import CallPiece
from yarrow.provider.base_decoder import EventBuffer, FrameDecoder, UsageAccumulator
from yarrow.provider.ollama.capabilities import FIELD_MARK
from yarrow.provider.stream_framing import NdjsonDecoder, decode_leniently, is_json_object
from yarrow.provider.think_tags import ThinkingSplit, ThinkTagSplitter
from yarrow.provider.tool_calls import ToolCallAssembler


class OllamaFunction(Struct, frozen=True, gc=False):
    """Name and arguments of a call; the arguments are an object, kept in its original form."""

    name: str | None = None
    arguments: Raw = Raw(b"")


class OllamaCall(Struct, frozen=True, gc=False):
    """A complete tool call; older servers send no id."""

    id: str | None = None
    function: OllamaFunction | None = None


class OllamaMessage(Struct, frozen=True, gc=False):
    """Fields that a line adds to the answer."""

    content: str | None = None
    thinking: str | None = None
    tool_calls: list[OllamaCall] | None = None


class OllamaChunk(Struct, frozen=True, gc=False):
    """One line; the counts are in tokens and only in the last one."""

    message: OllamaMessage | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: Any = None


_decode = msgspec.json.Decoder(OllamaChunk, strict=False).decode


def parse_chunk(data: bytes, backend: Backend) -> OllamaChunk:
    """Return the line; MALFORMED_RESPONSE if the data is not a JSON object of the expected shape."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return decode_leniently(data, _decode, backend=backend, kind="line of a chat answer")


SLACK_TOKENS = 16
"""Tokens below the window at which a context still counts as full; servers reserve a few."""
_NORMAL_REASONS = ("", "stop")


class _ChatLines(NdjsonDecoder):
    """Lines of a body, including a last one that lacks only its end."""

    def end(self) -> list[bytes]:
        """Return the last line if it is complete."""
        return [line for line in super().end() if _is_complete(line)]


def _is_complete(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


class OllamaDecoder(FrameDecoder):
    """Decoder of one answer of Ollama.

    `window` is the requested context in tokens: an answer that was truncated because it filled the context stops with
    CONTEXT_WINDOW.
    """

    accepts_body = False

    def __init__(self, backend: Backend, *, chunk_size: int = 0, window: int = 0) -> None:
        super().__init__(backend, _ChatLines(), EventBuffer(chunk_size))
        self._window = window
        self._tags = ThinkTagSplitter()
        self._calls = ToolCallAssembler(backend)

    def _take_frame(self, frame: bytes) -> None:
        line = parse_chunk(frame, self._backend)
        if line.error:
            raise make_event_error(frame, self._backend)
        if line.message is not None:
            self._take_message(line.message)
        if line.done:
            self._take_last(line)

    def _take_message(self, said: OllamaMessage) -> None:
        self.progress += bool(said.thinking or said.content or said.tool_calls)
        if said.thinking:
            # A server that separates thinking itself leaves no tags of its own in the content.
            self._add_split(self._tags.end())
            self._events.add_thinking(said.thinking, FIELD_MARK)
        if said.content:
            self._add_split(self._tags.feed(said.content))
        for call in said.tool_calls or ():
            self._add_split(self._tags.end())
            self._events.add_event(CallPiece(self._make_call(call)))

    def _add_split(self, split: ThinkingSplit) -> None:
        if split.thinking:
            self._events.add_thinking(split.thinking, "")
        if split.answer:
            self._events.add_text(split.answer)

    def _make_call(self, call: OllamaCall) -> ToolCall:
        function = call.function or OllamaFunction()
        arguments = _unquote(bytes(function.arguments).decode("utf-8", "replace"))
        return self._calls.make(call.id or "", function.name or "", "" if arguments.strip() == "null" else arguments)

    def _take_last(self, line: OllamaChunk) -> None:
        """End the answer with its last line, which alone says that it is complete."""
        self.complete = True
        self._add_split(self._tags.end())
        self._events.flush()
        reported = UsageAccumulator()
        reported.add("fresh", line.prompt_eval_count)
        reported.add("output", line.eval_count)
        usage = reported.usage()
        self._finish(usage, self._find_stop_reason(line.done_reason or "", usage or Usage()))

    def _end_answer(self) -> None:
        self._check_complete()

    def _find_stop_reason(self, reason: str, usage: Usage) -> StopReason:
        if reason in _NORMAL_REASONS:
            return StopReason.TOOL_USE if self._calls.count else StopReason.END_TURN
        if reason != "length":
            return StopReason.OTHER
        full = self._window > 0 and usage.context + SLACK_TOKENS >= self._window
        return StopReason.CONTEXT_WINDOW if full else StopReason.MAX_TOKENS

    def _fail(self, error: ProviderError) -> None:
        self._add_split(self._tags.end())
        super()._fail(error)


def _unquote(arguments: str) -> str:
    """Return arguments as an object; a proxy may have encoded them as a string."""
    if not arguments.startswith('"'):
        return arguments
    try:
        text = msgspec.json.decode(arguments, type=str)
    except msgspec.DecodeError:
        return arguments
    return text if is_json_object(text) else arguments
