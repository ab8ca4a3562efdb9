"""Skeleton of the decoders: frames of one answer in, uniform events out, and the same end for every format."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Protocol

from yarrow.errors import Code, ProviderError
from yarrow.message import StopReason, Usage
from yarrow.provider.backend_errors import Backend
from yarrow.provider.base import ProviderEvent, StopPiece, UsagePiece
from yarrow.provider.event_buffer import EventBuffer


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
