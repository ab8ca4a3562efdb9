"""Joins neighbouring deltas into pieces, and holds back the end of a thought until its signature is known."""

from yarrow.provider.base import OpaquePiece, ProviderEvent, TextPiece, ThinkingPiece
from yarrow.provider.messages.signatures import SEPARATOR, encode_hidden_thinking, encode_signature


class MessagesEventBuffer:
    """The events of one answer on their way out; deltas are joined until they hold `chunk_size` characters."""

    def __init__(self, chunk_size: int) -> None:
        self._chunk_size = chunk_size
        self._out: list[ProviderEvent] = []
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._size = 0
        self._after_thought = False

    def add_text(self, text: str) -> None:
        """Take a delta of text."""
        self._texts.append(text)
        self._size += len(text)

    def begin_thinking(self) -> None:
        """Tell that a block of thinking begins; two of them must not be joined into one."""
        self._flush_text()
        if self._after_thought:
            self.add_event(OpaquePiece(SEPARATOR))

    def add_thinking(self, text: str) -> None:
        """Take a delta of thinking."""
        self._thoughts.append(text)
        self._size += len(text)

    def end_thinking(self, signature: str) -> None:
        """End a block of thinking; the signature goes out with the last of its text."""
        text = "".join(self._thoughts)
        self._thoughts.clear()
        self._size = 0
        if text:
            self._out.append(ThinkingPiece(text, encode_signature(signature)))
            self._after_thought = True
        elif signature:
            self.add_event(OpaquePiece(encode_hidden_thinking(signature)))

    def add_event(self, piece: ProviderEvent) -> None:
        """Take a piece that is whole."""
        self._flush_text()
        self._out.append(piece)
        self._after_thought = False

    def flush_if_full(self) -> None:
        """Give what is pending, if it is enough, before bytes are waited for."""
        if self._size < self._chunk_size:
            return
        self._flush_text()
        if len(self._thoughts) > 1:
            *known, last = self._thoughts
            self._out.append(ThinkingPiece("".join(known)))
            self._thoughts = [last]
            self._size = len(last)

    def flush(self) -> None:
        """Give everything; a thought that is pending stays without a signature."""
        self._flush_text()
        self.end_thinking("")

    def take_events(self) -> list[ProviderEvent]:
        """Return the events since the last time."""
        events = self._out.copy()
        self._out.clear()
        return events

    def _flush_text(self) -> None:
        if self._texts:
            self._out.append(TextPiece("".join(self._texts)))
            self._texts.clear()
            self._size = 0
            self._after_thought = False
