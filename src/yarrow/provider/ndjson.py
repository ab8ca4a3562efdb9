"""Splits a stream of JSON values, one per line, as bytes, into its lines."""

from yarrow.errors import Code, ProviderError

MAX_LINE_BYTES = 16 * 1024 * 1024
"""Bytes of one line, finished or not; beyond is MALFORMED_RESPONSE."""


class NdjsonDecoder:
    """Takes a stream in pieces of any size; knows nothing of where the bytes come from.

    A line ends with LF and nothing else (other line separators are legal inside JSON). White space around a line,
    such as the CR of a CRLF, is taken off, and blank lines are passed over.
    """

    def __init__(self) -> None:
        self._line = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that are complete now."""
        first, *others = chunk.split(b"\n")
        self._line += first
        self._check(len(self._line))
        if not others:
            return []
        lines = [bytes(self._line), *others]
        self._line = bytearray(lines.pop())
        self._check(max(map(len, others)))
        return [line for line in map(bytes.strip, lines) if line]

    def end(self) -> list[bytes]:
        """Return what stands behind the last LF: a line that lacks only its end, or one that was cut off."""
        line = bytes(self._line).strip()
        return [line] if line else []

    def _check(self, size: int) -> None:
        if size > MAX_LINE_BYTES:
            raise ProviderError(
                Code.MALFORMED_RESPONSE, f"the server sent one line of more than {MAX_LINE_BYTES} bytes"
            )
