"""Buffer of decoded provider events, and an accumulator of their usage."""

from math import isnan
from typing import Literal

from yarrow.message import Usage
from yarrow.provider.base import ProviderEvent, TextPiece, ThinkingPiece


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
