"""Decodes the bytes of an Ollama stream into the uniform events."""

from yarrow.errors import Code, ProviderError
from yarrow.message import StopReason, Usage
from yarrow.provider.backend_errors import Backend, make_event_error
from yarrow.provider.base import CallPiece, ProviderEvent, StopPiece, UsagePiece
from yarrow.provider.event_buffer import EventBuffer
from yarrow.provider.ndjson import NdjsonDecoder
from yarrow.provider.ollama.chunk import OllamaChunk, OllamaMessage, is_complete, parse_chunk
from yarrow.provider.ollama.thinking import FIELD_MARK
from yarrow.provider.ollama.tool_calls import OllamaCallReader
from yarrow.provider.think_tags import ThinkingSplit, ThinkTagSplitter
from yarrow.provider.usage import UsageAccumulator

SLACK_TOKENS = 16
"""Tokens by which a full context may seem not full; servers keep a few for themselves."""
_NORMAL_REASONS = ("", "stop")


class OllamaDecoder:
    """One answer: `feed` it what each read of the socket brought, then `end` it.

    Deltas of one feed are joined into one piece; with `chunk_size` they are joined further, until a piece has that
    many characters or another kind of event comes. `window` is the context that was asked for, in tokens: an answer
    that was cut because it filled it stops with CONTEXT_WINDOW.
    """

    def __init__(self, backend: Backend, *, chunk_size: int = 0, window: int = 0) -> None:
        self.done = False
        """Whether the answer is whole and the stop was given, so that nothing more can come."""
        self.failure: ProviderError | None = None
        """Why nothing more comes; what came before it was given."""
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
        """Whether the answer is whole: only the last line says so."""
        return self.done

    def feed(self, data: bytes) -> list[ProviderEvent]:
        """Return what the bytes complete."""
        try:
            self._take_lines(self._ndjson.feed(data))
        except ProviderError as error:
            self._fail(error)
        self._events.flush_if_full()
        return self._events.take_events()

    def end(self) -> list[ProviderEvent]:
        """Return the rest at the end of the body; one that ended too early is the failure STREAM_TRUNCATED."""
        try:
            self._take_lines([line for line in self._ndjson.end() if is_complete(line)])
            if not self.done and self.failure is None:
                sentence = f"{self._backend.name} ended its answer before it was whole"
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
            # A server that takes thinking apart itself leaves no tags of its own in the content.
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
