"""Takes secrets out of a text that comes in pieces, also those that are cut in two."""

from yarrow.session.redaction import REDACTED, Redactor


class RedactingStream:
    """One text. Whatever its pieces, all that is given out comes to what `Redactor.text` makes of the whole.

    Only the longest end that may begin a secret is held back: less than the longest secret has characters.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._spellings = redactor.spellings
        self._first_characters = frozenset(spelling[0] for spelling in redactor.spellings)
        self._max_length = len(redactor.spellings[0]) if redactor.spellings else 0
        self._held = ""

    def feed(self, piece: str) -> str:
        """Take a piece; return what can be told now, which may be empty."""
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
            # A match that begins before cannot become another one: it would be a beginning itself.
            if found is None or found[0] >= start:
                break
            told += (text[at : found[0]], REDACTED)
            at = found[1]
        self._held = text[start:]
        return "".join((*told, text[at:start]))

    def flush(self) -> str:
        """Return what is held back: the text is over."""
        held, self._held = self._held, ""
        return self._redactor.redact_text(held)

    def _find_partial(self, text: str, at: int) -> int:
        """Return where the longest end of a text begins that may begin a secret; its length when there is none."""
        for place in range(max(at, len(text) - self._max_length + 1), len(text)):
            if text[place] in self._first_characters:
                end = text[place:]
                if any(len(spelling) > len(end) and spelling.startswith(end) for spelling in self._spellings):
                    return place
        return len(text)


class RedactingBytes:
    """One output in bytes, of which all but the secrets in it stays as it is."""

    def __init__(self, redactor: Redactor) -> None:
        self._stream = RedactingStream(redactor.for_bytes())

    def feed(self, piece: bytes) -> bytes:
        """Take a piece; return what can be told now, which may be empty."""
        return self._stream.feed(piece.decode("latin-1")).encode("latin-1")

    def flush(self) -> bytes:
        """Return what is held back: the output is over."""
        return self._stream.flush().encode("latin-1")
