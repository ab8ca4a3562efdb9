"""How long a result may be, and how text is made fit to be a result."""

from typing import Generic, TypeVar

from yarrow.tool.base import Sieve

T = TypeVar("T", str, list[str])

RESULT_LINES = 2_000
RESULT_BYTES = 51_200
"""50 KiB of UTF-8; whichever of the two comes first ends a result."""
NOTE_LINES = 10
NOTE_BYTES = 4_096
"""What a tool's own notes may add, about what was left out and where the rest is."""
PROGRESS_BYTES = 8_192
"""The most one piece of partial output holds; of more, the end is kept."""
DIFF_BYTES = 51_200
"""The most a diff holds; of more, the start is kept."""


def readable(data: bytes) -> str:
    """Decode output: what is not UTF-8 becomes U+FFFD and NUL becomes U+2400, so that any file and wire can hold it.

    Other control characters stay, escape sequences too: whoever draws on a terminal leaves them out there.
    """
    return data.decode("utf-8", "replace").replace("\0", "\u2400")


def clean(text: str) -> str:
    """Return the text as any file and wire can hold it: lone surrogates become `?`, NUL becomes U+2400."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\u2400")


def first_bytes(text: str, size: int) -> str:
    """Return the longest start of the text that is at most `size` bytes of UTF-8."""
    return text if len(text) * 4 <= size else text.encode()[:size].decode("utf-8", "ignore")


def last_bytes(text: str, size: int) -> str:
    """Return the longest end of the text that is at most `size` bytes of UTF-8."""
    return text if len(text) * 4 <= size else text.encode()[-size:].decode("utf-8", "ignore")


def line_count(text: str) -> int:
    """Return the number of lines; a last one need not end in a line feed."""
    return text.count("\n") + (1 if text and not text.endswith("\n") else 0)


def without_half(start: bytes, sieve: Sieve) -> bytes:
    """Return the start of a text without the start of a secret at its end, which would pass for an ordinary word."""
    sieve.feed(start)
    return start[: len(start) - len(sieve.flush())]


def bounded(text: str, sieve: Sieve) -> str:
    """Return the text within the limits of a result and of its notes; when it is cut it says how much there was."""
    total, lines = len(text.encode()), line_count(text)
    if total <= RESULT_BYTES + NOTE_BYTES and lines <= RESULT_LINES + NOTE_LINES:
        return text
    start = without_half(first_bytes(text, RESULT_BYTES).encode(), sieve).decode("utf-8", "ignore")
    kept = "\n".join(start.split("\n")[:RESULT_LINES])
    return f"{kept.rstrip()}\n[cut: this is the start of {total:,} bytes in {lines:,} lines; ask for less at a time]"


def bounded_diff(diff: str) -> str:
    """Return the diff within `DIFF_BYTES`, cut after a whole line; when it is cut it says so."""
    total = len(diff.encode())
    if total <= DIFF_BYTES:
        return diff
    kept = first_bytes(diff, DIFF_BYTES)
    return kept[: kept.rfind("\n") + 1] + f"[diff cut: this is the start of {total:,} bytes]\n"


def shown_size(size: int) -> str:
    """Return a number of bytes as it is told."""
    return f"{size:,} byte{'' if size == 1 else 's'}"


def plural(count: int, noun: str) -> str:
    """Return a count and its noun: `1 match`, `2 matches`, `3 lines`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun}{'es' if noun.endswith(('ch', 's')) else 's'}"


class Smallest(Generic[T]):
    """Keeps the smallest `limit` of all that it is given, and counts the rest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: list[T] = []
        self.count = 0
        """How many it was given."""

    def add(self, item: T) -> None:
        """Take one; at most twice the limit is held at a time."""
        self.count += 1
        self._kept.append(item)
        if len(self._kept) >= 2 * self._limit:
            self._kept = self.kept()

    def kept(self) -> list[T]:
        """Return the smallest, in order."""
        return sorted(self._kept)[: self._limit]
