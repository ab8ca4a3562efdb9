"""Skeleton of the decoders: frames of one answer in, uniform events out, and the same end for every format."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from math import isnan
from typing import ClassVar, Literal, Protocol

from yarrow.errors import Code, ProviderError
from yarrow.message import StopReason, Usage
from yarrow.provider.backend_errors import Backend
from yarrow.provider.base import ProviderEvent, StopPiece, TextPiece, ThinkingPiece, UsagePiece


class EventBuffer:
    """Outgoing events of one answer; deltas are joined until they contain `chunk_size` characters."""

    def __init__(self, chunk_size: int) -> None:
        self._chunk_size = chunk_size
        self._out: list[ProviderEvent] = []
        self._pending: list[str] = []
        self._size = 0
        self._opaque: str | None = None
        """Opaque data of the pending thinking; None while the pending delta is text."""

    def add_text(self, text: str) -> None:
        """Add a delta of the answer."""
        if self._opaque is not None:
            self._start_piece(None)
        self._pending.append(text)
        self._size += len(text)

    def add_thinking(self, text: str, opaque: str = "") -> None:
        """Add a delta of thinking; different opaque data starts a new piece."""
        if self._opaque != opaque:
            self._start_piece(opaque)
        self._pending.append(text)
        self._size += len(text)

    def add_event(self, piece: ProviderEvent) -> None:
        """Add a complete piece."""
        self.flush()
        self._out.append(piece)

    def flush_if_full(self) -> None:
        """Emit the pending text if it is long enough; called before waiting for bytes."""
        if self._pending and self._size >= self._chunk_size:
            self.flush()

    def flush(self) -> None:
        """Emit the pending text."""
        if not self._pending:
            return
        text = "".join(self._pending)
        self._pending.clear()
        self._size = 0
        if text:
            self._out.append(TextPiece(text) if self._opaque is None else ThinkingPiece(text, self._opaque))

    def take_events(self) -> list[ProviderEvent]:
        """Return the events since the last call."""
        events = self._out.copy()
        self._out.clear()
        return events

    def _start_piece(self, opaque: str | None) -> None:
        self.flush()
        self._opaque = opaque


MAX_FIGURE_TOKENS = 1 << 50
"""Maximum tokens of one figure; a larger value is clamped."""

TokenFigure = Literal["prompt", "fresh", "output", "answer", "thinking", "cache_read", "cache_write"]
"""`prompt` includes cached tokens, `fresh` does not; `output` includes thinking, `answer` does not."""


class UsageAccumulator:
    """Largest value of each figure: reports are running totals, and the last one may be 0 or incomplete."""

    def __init__(self) -> None:
        self._largest: dict[TokenFigure, int] = {}

    def add(self, figure: TokenFigure, tokens: float | None) -> None:
        """Add a reported figure; None is ignored."""
        if tokens is not None:
            self._largest[figure] = max(self._largest.get(figure, 0), _clamp(tokens))

    def usage(self) -> Usage | None:
        """Return the tokens of the answer; None if the server reported none."""
        largest = self._largest
        if not largest:
            return None
        read, written = largest.get("cache_read", 0), largest.get("cache_write", 0)
        thinking = largest.get("thinking", 0)
        fresh = largest["fresh"] if "fresh" in largest else max(0, largest.get("prompt", 0) - read - written)
        output = largest["output"] if "output" in largest else largest.get("answer", 0) + thinking
        return Usage(fresh, output, cache_read=read, cache_write=written, thinking=min(output, thinking))


def _clamp(tokens: float) -> int:
    return 0 if isnan(tokens) else int(min(max(0, tokens), MAX_FIGURE_TOKENS))


class AnswerDecoder:
    """State of one answer and its outgoing events.

    Deltas of one feed are joined into one piece; with a chunk size they are joined further, until a piece has that many
    characters or another kind of event arrives.
    """

    def __init__(self, backend: Backend, events: EventBuffer) -> None:
        self.complete = False
        """The answer is complete: its end, or the reason for it, was seen."""
        self.done = False
        """The stop has been emitted, so no more events can come."""
        self.failure: ProviderError | None = None
        """Error that ended the answer; the events before it were returned."""
        self.progress = 0
        """Number of pieces of content so far: text, thinking, parts of calls and usage."""
        self._backend = backend
        self._events = events

    def flush(self) -> list[ProviderEvent]:
        """Return the remaining events, including pending text."""
        self._events.flush()
        return self._events.take_events()

    def _check_complete(self) -> None:
        """Raise STREAM_TRUNCATED if the answer ends without a reason."""
        if not self.complete:
            sentence = f"{self._backend.name} ended its answer before it was complete"
            raise ProviderError(Code.STREAM_TRUNCATED, sentence, retryable=True)

    def _finish(self, usage: Usage | None, stop: StopReason) -> None:
        """Emit the last events: the usage, if the server reported any, and the stop."""
        if usage is not None:
            self._events.add_event(UsagePiece(usage))
        self._events.add_event(StopPiece(stop))
        self.done = True


class Framing(Protocol):
    """Splits the bytes of a body into frames."""

    def feed(self, chunk: bytes, /) -> list[bytes]:
        """Return the frames that are now complete."""
        ...

    def end(self) -> list[bytes]:
        """Return the frames that the end of the body completes."""
        ...


class FrameDecoder(AnswerDecoder, ABC):
    """Decoder of one answer in frames: call `feed` with what each read of the socket returned, then `end`."""

    accepts_body: ClassVar[bool] = True
    """An answer may also be a whole body, for `take`, from a server that did not stream."""

    def __init__(self, backend: Backend, framing: Framing, events: EventBuffer) -> None:
        super().__init__(backend, events)
        self._framing = framing

    def feed(self, data: bytes) -> list[ProviderEvent]:
        """Return the events that the bytes complete."""
        try:
            self._take_frames(self._framing.feed(data))
        except ProviderError as error:
            self._fail(error)
        self._events.flush_if_full()
        return self._events.take_events()

    def take(self, body: bytes) -> list[ProviderEvent]:
        """Return the events in a body that is not a stream, but a single frame."""
        try:
            self._take_frames((body,))
        except ProviderError as error:
            self._fail(error)
        return self._events.take_events()

    def end(self) -> list[ProviderEvent]:
        """Return the remaining events at the end of the body; one that ended too early fails with STREAM_TRUNCATED."""
        try:
            self._take_frames(self._framing.end())
            if not self.done and self.failure is None:
                self._end_answer()
        except ProviderError as error:
            self._fail(error)
        return self._events.take_events()

    def _take_frames(self, frames: Iterable[bytes]) -> None:
        if self.failure is not None:
            return
        for frame in frames:
            if self.done:
                return
            self._take_frame(frame)

    def _fail(self, error: ProviderError) -> None:
        self._events.flush()
        self.failure = error

    @abstractmethod
    def _take_frame(self, frame: bytes) -> None:
        """Process one frame. Raises ProviderError, which ends the answer."""

    @abstractmethod
    def _end_answer(self) -> None:
        """Emit everything held until the end. Raises STREAM_TRUNCATED if the answer is not complete."""
