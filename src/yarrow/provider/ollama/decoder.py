"""Decoder of Ollama's NDJSON stream."""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from yarrow.errors import Code, ProviderError
from yarrow.message import StopReason, ToolCall, Usage
from yarrow.provider.backend_errors import Backend, make_event_error
from yarrow.provider.base import CallPiece, ProviderEvent, StopPiece, UsagePiece
from yarrow.provider.chat_completions.tool_calls import MAX_CALLS, new_call_id
from yarrow.provider.event_buffer import EventBuffer, UsageAccumulator
from yarrow.provider.ollama.capabilities import FIELD_MARK
from yarrow.provider.stream_framing import NdjsonDecoder, decode_leniently, is_json_object
from yarrow.provider.think_tags import ThinkingSplit, ThinkTagSplitter


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


def is_complete(data: bytes) -> bool:
    """Return whether a line without an end is complete."""
    try:
        msgspec.json.decode(data, type=Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


SLACK_TOKENS = 16
"""Tokens below the window at which a context still counts as full; servers reserve a few."""
_NORMAL_REASONS = ("", "stop")


class OllamaDecoder:
    """Decoder of one answer: call `feed` with what each read of the socket returned, then `end`.

    Deltas of one feed are joined into one piece; with `chunk_size` they are joined further, until a piece has that many
    characters or another kind of event arrives. `window` is the requested context in tokens: an answer that was
    truncated because it filled the context stops with CONTEXT_WINDOW.
    """

    def __init__(self, backend: Backend, *, chunk_size: int = 0, window: int = 0) -> None:
        self.done = False
        """The answer is complete and the stop has been emitted, so no more events can come."""
        self.failure: ProviderError | None = None
        """Error that ended the answer; the events before it were returned."""
        self.progress = 0
        """Number of pieces of content so far: text, thinking, parts of calls and usage."""
        self._backend = backend
        self._window = window
        self._ndjson = NdjsonDecoder()
        self._events = EventBuffer(chunk_size)
        self._tags = ThinkTagSplitter()
        self._calls = OllamaCallReader(backend)

    @property
    def complete(self) -> bool:
        """The answer is complete; only the last line says so."""
        return self.done

    def feed(self, data: bytes) -> list[ProviderEvent]:
        """Return the events that the bytes complete."""
        try:
            self._take_lines(self._ndjson.feed(data))
        except ProviderError as error:
            self._fail(error)
        self._events.flush_if_full()
        return self._events.take_events()

    def end(self) -> list[ProviderEvent]:
        """Return the remaining events at the end of the body; one that ended too early fails with STREAM_TRUNCATED."""
        try:
            self._take_lines([line for line in self._ndjson.end() if is_complete(line)])
            if not self.done and self.failure is None:
                sentence = f"{self._backend.name} ended its answer before it was complete"
                raise ProviderError(Code.STREAM_TRUNCATED, sentence, retryable=True)
        except ProviderError as error:
            self._fail(error)
        return self._events.take_events()

    def _take_lines(self, lines: list[bytes]) -> None:
        for data in lines:
            if self.done or self.failure is not None:
                return
            line = parse_chunk(data, self._backend)
            if line.error:
                raise make_event_error(data, self._backend)
            if line.message is not None:
                self._take_message(line.message)
            if line.done:
                self._end_answer(line)

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
            self._events.add_event(CallPiece(self._calls.read(call)))

    def _add_split(self, split: ThinkingSplit) -> None:
        if split.thinking:
            self._events.add_thinking(split.thinking, "")
        if split.answer:
            self._events.add_text(split.answer)

    def _end_answer(self, line: OllamaChunk) -> None:
        self._add_split(self._tags.end())
        self._events.flush()
        reported = UsageAccumulator()
        reported.add("fresh", line.prompt_eval_count)
        reported.add("output", line.eval_count)
        if (usage := reported.usage()) is not None:
            self._events.add_event(UsagePiece(usage))
        self._events.add_event(StopPiece(self._find_stop_reason(line.done_reason or "", usage or Usage())))
        self.done = True

    def _find_stop_reason(self, reason: str, usage: Usage) -> StopReason:
        if reason in _NORMAL_REASONS:
            return StopReason.TOOL_USE if self._calls.count else StopReason.END_TURN
        if reason != "length":
            return StopReason.OTHER
        full = self._window > 0 and usage.context + SLACK_TOKENS >= self._window
        return StopReason.CONTEXT_WINDOW if full else StopReason.MAX_TOKENS

    def _fail(self, error: ProviderError) -> None:
        self._add_split(self._tags.end())
        self._events.flush()
        self.failure = error


_EMPTY_ARGUMENTS = ("", "null")


class OllamaCallReader:
    """Reader for the calls of one answer; more than MAX_CALLS, or one without a name, is MALFORMED_TOOL_CALL."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._ids: set[str] = set()

    @property
    def count(self) -> int:
        """Number of calls read."""
        return len(self._ids)

    def read(self, call: OllamaCall) -> ToolCall:
        """Return the call, with an id that is unique in the answer."""
        function = call.function or OllamaFunction()
        if not function.name:
            raise self._refuse("a tool call without a name")
        if self.count == MAX_CALLS:
            raise self._refuse(f"more than {MAX_CALLS} tool calls in one answer")
        call_id = call.id if call.id and call.id not in self._ids else new_call_id()
        self._ids.add(call_id)
        arguments = _unquote(bytes(function.arguments).decode("utf-8", "replace"))
        if arguments.strip() in _EMPTY_ARGUMENTS:
            return ToolCall(call_id, function.name)
        if is_json_object(arguments):
            return ToolCall(call_id, function.name, arguments)
        return ToolCall(call_id, function.name, invalid_arguments=arguments)

    def _refuse(self, what: str) -> ProviderError:
        return ProviderError(Code.MALFORMED_TOOL_CALL, f"{self._backend.name} sent {what}", retryable=True)


def _unquote(arguments: str) -> str:
    """Return arguments as an object; a proxy may have encoded them as a string."""
    if not arguments.startswith('"'):
        return arguments
    try:
        text = msgspec.json.decode(arguments, type=str)
    except msgspec.DecodeError:
        return arguments
    return text if is_json_object(text) else arguments
