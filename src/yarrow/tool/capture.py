"""Keeps the output of a command within bounds: its head, its tail, a file with the whole, and pieces to stream."""

import codecs
from collections.abc import Callable

from yarrow.policy.scratch import scratch_file
from yarrow.tool.limits import PROGRESS_BYTES, RESULT_BYTES, RESULT_LINES, first_bytes, last_bytes, readable

HEAD_BYTES = 16_384
HEAD_LINES = 500
TAIL_BYTES = RESULT_BYTES - HEAD_BYTES - 1_024
TAIL_LINES = RESULT_LINES - HEAD_LINES - 1
"""What a result shows of output that exceeds its limits; a line between the two, of at most 1 KiB, says so."""
FILE_BYTES = 67_108_864
"""The most of the output that the file holds, from its start; 64 MiB."""
DELTAS_PER_SECOND = 20
DELTA_NOTE_BYTES = 64
"""What of a delta is left for the note that some output was not streamed."""


class Capture:
    """All that a command writes, in bounded memory."""

    def __init__(self) -> None:
        self._head = b""
        self._tail = bytearray()
        self._bytes = 0
        self._lines = 0
        self._whole: _Whole | None = None

    def add(self, data: bytes) -> None:
        """Take a piece. From the one on that exceeds the limits of a result, all goes to a file, and is cut here."""
        self._bytes += len(data)
        self._lines += data.count(b"\n")
        self._tail += data
        if self._whole is not None:
            self._whole.write(data)
        elif self._bytes > RESULT_BYTES or self._lines > RESULT_LINES:
            self._whole = _Whole()
            self._whole.write(self._tail)
            self._head = _first_lines(bytes(self._tail[:HEAD_BYTES]), HEAD_LINES)
            del self._tail[: len(self._head)]
        if self._whole is not None and len(self._tail) > 2 * TAIL_BYTES:  # seldom, so that little is moved
            del self._tail[:-TAIL_BYTES]

    def text(self) -> str:
        """Return the output, without the line feed at its end; of more than the limits, head and tail with a note."""
        if self._whole is None:
            return readable(bytes(self._tail)).removesuffix("\n")
        tail = bytes(self._tail[-TAIL_BYTES:])
        if len(self._tail) >= TAIL_BYTES:  # its first line may be half of one
            tail = tail[tail.find(b"\n", 0, -1) + 1 :]
        last_end = tail.endswith(b"\n")
        tail = b"\n".join(tail.removesuffix(b"\n").split(b"\n")[-TAIL_LINES:])
        hidden = self._bytes - len(self._head) - len(tail) - last_end
        shown_head = first_bytes(readable(self._head).removesuffix("\ufffd"), HEAD_BYTES).removesuffix("\n")
        shown_tail = last_bytes(readable(tail).lstrip("\ufffd"), TAIL_BYTES)
        note = f"{hidden:,} of {self._bytes:,} bytes not shown ({self._lines:,} lines in all); {self._whole.where()}"
        return f"{shown_head}\n[... {note} ...]\n{shown_tail}"

    def close(self) -> None:
        """Close the file; it stays."""
        if self._whole is not None:
            self._whole.close()


class _Whole:
    """The file that holds the output, or its first `FILE_BYTES`. A disk that is full costs the file, no more."""

    def __init__(self) -> None:
        descriptor, self._path = scratch_file()
        self._file = open(descriptor, "wb", buffering=0)  # noqa: SIM115  (close() closes it)
        self._written = 0
        self._given = 0
        self._problem = ""

    def write(self, data: bytes | bytearray) -> None:
        self._given += len(data)
        data = data[: FILE_BYTES - self._written]
        try:
            while data and not self._problem:
                count = self._file.write(data)
                self._written += count
                data = data[count:]
        except OSError as error:
            self._problem = f" ({error.strerror})"

    def where(self) -> str:
        """Return where the output is, and how much of it."""
        if self._written < self._given:
            return f"its first {self._written:,} bytes are in {self._path}{self._problem}"
        return f"all of it is in {self._path}"

    def close(self) -> None:
        self._file.close()


class Deltas:
    """Joins pieces of output to at most `DELTAS_PER_SECOND` readable ones, each of at most `PROGRESS_BYTES`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due = 0.0
        self._pending = bytearray()
        self._dropped = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, data: bytes) -> str:
        """Take a piece, and return what is to be shown now: nothing when the last was too short a time ago.

        Of more than fits, the end is kept, and it says so.
        """
        self._pending += data
        excess = len(self._pending) - PROGRESS_BYTES
        if excess > 0:
            del self._pending[:excess]
            self._dropped += excess
        if not self._pending or self._clock() < self._due:
            return ""
        self._due = self._clock() + 1 / DELTAS_PER_SECOND
        return self._take(final=False)

    def rest(self) -> str:
        """Return what was not shown yet."""
        return self._take(final=True)

    def _take(self, *, final: bool) -> str:
        data = bytes(self._pending)
        self._pending.clear()
        if not self._dropped:
            return self._decoder.decode(data, final).replace("\0", "\u2400")
        note = f"[... {self._dropped:,} bytes ...]\n"
        self._dropped = 0
        self._decoder.reset()
        text = self._decoder.decode(data, final).lstrip("\ufffd").replace("\0", "\u2400")
        return note + last_bytes(text, PROGRESS_BYTES - DELTA_NOTE_BYTES)


def _first_lines(data: bytes, count: int) -> bytes:
    """Return at most `count` lines from the start, whole ones if there are any."""
    lines = data.split(b"\n", count)[:count]
    if len(lines) == count:
        return b"\n".join(lines) + b"\n"
    return data[: data.rfind(b"\n") + 1] or data
