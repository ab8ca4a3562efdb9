"""Framing of provider streams: server-sent events, NDJSON, and lenient JSON decoding."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from yarrow.errors import Code, ProviderError
from yarrow.provider.backend_errors import Backend, quote_text
from yarrow.provider.request_body import replace_surrogates

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Maximum bytes of one event's data, or of one unfinished line; beyond it MALFORMED_RESPONSE."""
MAX_EVENT_LINES = 64 * 1024
"""Maximum data lines of one event, including empty ones, each of which costs more than its bytes; beyond it
MALFORMED_RESPONSE.
"""

_BOM = b"\xef\xbb\xbf"


class SseDecoder:
    """Decoder of server-sent events, fed with pieces of any size from any source.

    A line ends only with LF, CR or CRLF (other line separators are legal inside JSON). Comments and all fields but
    `data` are ignored, as is an event without data or with empty data.
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._at_start = True
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of each event that is now complete, with data lines joined by LF."""
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[0] == 0x0A:
                chunk = chunk[1:]
        # Unlike str.splitlines, bytes.splitlines knows LF, CR and CRLF only.
        lines = chunk.splitlines()
        if not lines:
            return []
        self._after_cr = chunk[-1] == 0x0D
        rest = b"" if chunk[-1] in b"\r\n" else lines.pop()
        if lines:
            self._finish_line(lines)
        events = self._take_lines(lines)
        self._line += rest
        if self._size + len(self._line) > MAX_EVENT_BYTES:
            raise _too_large()
        if len(self._data) > MAX_EVENT_LINES:
            raise ProviderError(
                Code.MALFORMED_RESPONSE, f"the server sent one event of more than {MAX_EVENT_LINES} lines"
            )
        return events

    def end(self) -> list[bytes]:
        """Return the last event if only its blank line is missing; an unfinished line was truncated and is dropped."""
        return self._take_lines([b""])

    def _finish_line(self, lines: list[bytes]) -> None:
        if self._line:
            lines[0] = bytes(self._line) + lines[0]
            self._line.clear()
        if self._at_start:
            self._at_start = False
            lines[0] = lines[0].removeprefix(_BOM)

    def _take_lines(self, lines: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        data = self._data
        for line in lines:
            if line[:5] == b"data:":
                value = line[6:] if line[5:6] == b" " else line[5:]
                data.append(value)
                self._size += len(value) + 1
            elif line == b"data":
                data.append(b"")
                self._size += 1
            elif not line and data:
                event = data[0] if len(data) == 1 else b"\n".join(data)
                if self._size > MAX_EVENT_BYTES:
                    raise _too_large()
                if event:
                    events.append(event)
                data.clear()
                self._size = 0
        return events


def _too_large() -> ProviderError:
    return ProviderError(Code.MALFORMED_RESPONSE, f"the server sent one event of more than {MAX_EVENT_BYTES} bytes")


MAX_LINE_BYTES = 16 * 1024 * 1024
"""Maximum bytes of one line, finished or not; beyond it MALFORMED_RESPONSE."""


class NdjsonDecoder:
    """Decoder of NDJSON, fed with pieces of any size from any source.

    A line ends only with LF (other line separators are legal inside JSON). White space around a line, such as the CR of
    a CRLF, is stripped, and blank lines are ignored.
    """

    def __init__(self) -> None:
        self._line = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that are now complete."""
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
        """Return the text after the last LF: a line that lacks only its end, or a truncated one."""
        line = bytes(self._line).strip()
        return [line] if line else []

    def _check(self, size: int) -> None:
        if size > MAX_LINE_BYTES:
            raise ProviderError(
                Code.MALFORMED_RESPONSE, f"the server sent one line of more than {MAX_LINE_BYTES} bytes"
            )


T = TypeVar("T")


def decode_leniently(data: bytes, decode: Callable[[str], T], *, backend: Backend, kind: str) -> T:
    """Decode bytes that are not UTF-8, and escapes of lone surrogates; otherwise raise MALFORMED_RESPONSE."""
    import json

    try:
        return decode(replace_surrogates(json.dumps(json.loads(data.decode("utf-8", "replace")), ensure_ascii=False)))
    except (ValueError, RecursionError):  # each library raises its own subclass
        raise make_unreadable_error(data, backend=backend, kind=kind) from None


def make_unreadable_error(data: bytes, *, backend: Backend, kind: str) -> ProviderError:
    """Return MALFORMED_RESPONSE for data that should be a `kind`, such as "line of a chat answer"."""
    said = quote_text(data[:2400].decode("utf-8", "replace"), backend)
    sentence = f"{backend.name} sent an invalid {kind}: {said}"
    return ProviderError(Code.MALFORMED_RESPONSE, sentence, retryable=True)


_decode = msgspec.json.Decoder(dict[str, Any]).decode


def is_json_object(text: str) -> bool:
    """Return whether a text is one whole JSON object, with only white space around it."""
    try:
        _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def decode_json_object(text: str) -> dict[str, Any]:
    """Return the JSON object in a text; empty if the text is something else."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
