"""Decodes the bytes of an Ollama stream into the uniform events."""

from yarrow.errors import Code, ProviderError
from yarrow.message import StopReason, Usage
from yarrow.provider.base import CallPiece, ProviderEvent, StopPiece, UsagePiece
from yarrow.provider.failures import Speaker, from_event
from yarrow.provider.ndjson import NdjsonDecoder
from yarrow.provider.ollama.calls import Calls
from yarrow.provider.ollama.line import Line, Said, is_whole, parse
from yarrow.provider.ollama.thinking import FIELD
from yarrow.provider.outlet import Outlet
from yarrow.provider.think_tags import Split, ThinkTags
from yarrow.provider.usage import UsageAccumulator

SLACK = 16
"""Tokens by which a full context may seem not full; servers keep a few for themselves."""
_NATURAL = ("", "stop")


class OllamaDecoder:
    """One answer: `feed` it what each read of the socket brought, then `end` it.

    Deltas of one feed are joined into one piece; with `chunk_size` they are joined further, until a piece has that
    many characters or another kind of event comes. `window` is the context that was asked for, in tokens: an answer
    that was cut because it filled it stops with CONTEXT_WINDOW.
    """

    def __init__(self, speaker: Speaker, *, chunk_size: int = 0, window: int = 0) -> None:
        self.done = False
        """Whether the answer is whole and the stop was given, so that nothing more can come."""
        self.failure: ProviderError | None = None
        """Why nothing more comes; what came before it was given."""
        self.progress = 0
        """Number of pieces of content so far: text, thinking, parts of calls and usage."""
        self._speaker = speaker
        self._window = window
        self._ndjson = NdjsonDecoder()
        self._outlet = Outlet(chunk_size)
        self._tags = ThinkTags()
        self._calls = Calls(speaker)

    @property
    def complete(self) -> bool:
        """Whether the answer is whole: only the last line says so."""
        return self.done

    def feed(self, data: bytes) -> list[ProviderEvent]:
        """Return what the bytes complete."""
        try:
            self._take_all(self._ndjson.feed(data))
        except ProviderError as error:
            self._fail(error)
        self._outlet.pause()
        return self._outlet.given()

    def end(self) -> list[ProviderEvent]:
        """Return the rest at the end of the body; one that ended too early is the failure STREAM_TRUNCATED."""
        try:
            self._take_all([line for line in self._ndjson.end() if is_whole(line)])
            if not self.done and self.failure is None:
                sentence = f"{self._speaker.name} ended its answer before it was whole"
                raise ProviderError(Code.STREAM_TRUNCATED, sentence, retryable=True)
        except ProviderError as error:
            self._fail(error)
        return self._outlet.given()

    def _take_all(self, lines: list[bytes]) -> None:
        for data in lines:
            if self.done or self.failure is not None:
                return
            line = parse(data, self._speaker)
            if line.error:
                raise from_event(data, self._speaker)
            if line.message is not None:
                self._add(line.message)
            if line.done:
                self._close(line)

    def _add(self, said: Said) -> None:
        self.progress += bool(said.thinking or said.content or said.tool_calls)
        if said.thinking:
            # A server that takes thinking apart itself leaves no tags of its own in the content.
            self._give(self._tags.end())
            self._outlet.thought(said.thinking, FIELD)
        if said.content:
            self._give(self._tags.feed(said.content))
        for call in said.tool_calls or ():
            self._give(self._tags.end())
            self._outlet.give(CallPiece(self._calls.read(call)))

    def _give(self, split: Split) -> None:
        if split.thinking:
            self._outlet.thought(split.thinking, "")
        if split.answer:
            self._outlet.text(split.answer)

    def _close(self, line: Line) -> None:
        self._give(self._tags.end())
        self._outlet.flush()
        reported = UsageAccumulator()
        reported.add("fresh", line.prompt_eval_count)
        reported.add("output", line.eval_count)
        if (usage := reported.usage()) is not None:
            self._outlet.give(UsagePiece(usage))
        self._outlet.give(StopPiece(self._reason(line.done_reason or "", usage or Usage())))
        self.done = True

    def _reason(self, reason: str, usage: Usage) -> StopReason:
        if reason in _NATURAL:
            return StopReason.TOOL_USE if self._calls.count else StopReason.END_TURN
        if reason != "length":
            return StopReason.OTHER
        full = self._window > 0 and usage.context + SLACK >= self._window
        return StopReason.CONTEXT_WINDOW if full else StopReason.MAX_TOKENS

    def _fail(self, error: ProviderError) -> None:
        self._give(self._tags.end())
        self._outlet.flush()
        self.failure = error
