"""Redaction of text and bytes that arrive in pieces."""

from yarrow.redaction.redactor import REDACTED, Redactor


class RedactingStream:
    """Redacts one text that arrives in pieces; the output equals `Redactor.redact_text` of the whole text.

    Holds back only the longest suffix that may start a secret: fewer characters than the longest secret has.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._spellings = redactor.spellings
        self._first_characters = frozenset(spelling[0] for spelling in redactor.spellings)
        self._max_length = len(redactor.spellings[0]) if redactor.spellings else 0
        self._held = ""

    def feed(self, piece: str) -> str:
        """Add a piece; return the text that can be emitted now, possibly empty."""
        text = self._held + piece
        if not self._redactor.has_secret(text):
            start = self._find_partial(text, 0)
            self._held = text[start:]
            return text[:start]
        told: list[str] = []
        at = 0
        while True:
            start = self._find_partial(text, at)
            found = self._redactor.find_secret(text, at)
            # An earlier match cannot change any more: otherwise its start would have been held back.
            if found is None or found[0] >= start:
                break
            told += (text[at : found[0]], REDACTED)
            at = found[1]
        self._held = text[start:]
        return "".join((*told, text[at:start]))

    def flush(self) -> str:
        """Return the held-back text at the end of the stream."""
        held, self._held = self._held, ""
        return self._redactor.redact_text(held)

    def _find_partial(self, text: str, at: int) -> int:
        """Return the start of the longest suffix that may start a secret; the text's length if there is none."""
        for place in range(max(at, len(text) - self._max_length + 1), len(text)):
            if text[place] in self._first_characters:
                end = text[place:]
                if any(len(spelling) > len(end) and spelling.startswith(end) for spelling in self._spellings):
                    return place
        return len(text)


class RedactingBytes:
    """Redacts one stream of bytes; everything else passes through unchanged."""

    def __init__(self, redactor: Redactor) -> None:
        self._stream = RedactingStream(redactor.for_bytes())

    def feed(self, piece: bytes) -> bytes:
        """Add a piece; return the bytes that can be emitted now, possibly empty."""
        return self._stream.feed(piece.decode("latin-1")).encode("latin-1")

    def flush(self) -> bytes:
        """Return the held-back bytes at the end of the stream."""
        return self._stream.flush().encode("latin-1")
