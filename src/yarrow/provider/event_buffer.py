"""Joins neighbouring deltas of one kind into pieces."""

from yarrow.provider.base import ProviderEvent, TextPiece, ThinkingPiece


class EventBuffer:
    """The events of one answer on their way out; deltas are joined until they hold `chunk_size` characters."""

    def __init__(self, chunk_size: int) -> None:
        self._chunk_size = chunk_size
        self._out: list[ProviderEvent] = []
        self._pending: list[str] = []
        self._size = 0
        self._opaque: str | None = None
        """Of the thinking that is pending; None while it is text."""

    def add_text(self, text: str) -> None:
        """Take a delta of the answer."""
        self._add(text, None)

    def add_thinking(self, text: str, opaque: str) -> None:
        """Take a delta of thinking; one with other opaque data begins a new piece."""
        self._add(text, opaque)

    def add_event(self, piece: ProviderEvent) -> None:
        """Take a piece that is whole."""
        self.flush()
        self._out.append(piece)

    def flush_if_full(self) -> None:
        """Give what is pending, if it is enough, before bytes are waited for."""
        if self._size >= self._chunk_size:
            self.flush()

    def flush(self) -> None:
        """Give what is pending."""
        text = "".join(self._pending)
        self._pending.clear()
        self._size = 0
        if text:
            self._out.append(TextPiece(text) if self._opaque is None else ThinkingPiece(text, self._opaque))

    def take_events(self) -> list[ProviderEvent]:
        """Return the events since the last time."""
        events = self._out.copy()
        self._out.clear()
        return events

    def _add(self, text: str, opaque: str | None) -> None:
        if opaque != self._opaque:
            self.flush()
            self._opaque = opaque
        self._pending.append(text)
        self._size += len(text)
