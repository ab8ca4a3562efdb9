"""Splits a stream of server-sent events, as bytes, into the data of each event."""

from yarrow.errors import Code, ProviderError

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Bytes of the data of one event, or of one unfinished line; beyond is MALFORMED_RESPONSE."""
MAX_EVENT_LINES = 64 * 1024
"""Data lines of one event, empty ones too, each of which costs more than its bytes; beyond is MALFORMED_RESPONSE."""

_BOM = b"\xef\xbb\xbf"


class SseDecoder:
    """Takes a stream in pieces of any size; knows nothing of where the bytes come from.

    A line ends with LF, CR or CRLF and nothing else (other line separators are legal inside JSON). Comments and all
    fields but `data` are passed over; an event without data, or with empty data, is none.
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._at_start = True
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of each event that is complete now, several data lines joined with LF."""
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[0] == 0x0A:
                chunk = chunk[1:]
        # Unlike str.splitlines, the one of bytes knows LF, CR and CRLF only.
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
        """Return the last event if only its blank line is missing; a line without an end was cut off and is dropped."""
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
