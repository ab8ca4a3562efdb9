"""How long a result may be, and how text is made fit to be a result."""

from typing import Generic, TypeVar

from yarrow.tool.base import OutputFilter

T = TypeVar("T", str, list[str])

MAX_RESULT_LINES = 2_000
MAX_RESULT_BYTES = 51_200
"""50 KiB of UTF-8; whichever of the two comes first ends a result."""
MAX_NOTE_LINES = 10
MAX_NOTE_BYTES = 4_096
"""What a tool's own notes may add, about what was left out and where the rest is."""
MAX_PROGRESS_BYTES = 8_192
"""The most one piece of partial output holds; of more, the end is kept."""
MAX_DIFF_BYTES = 51_200
"""The most a diff holds; of more, the start is kept."""


def decode_output(data: bytes) -> str:
    """Decode output: what is not UTF-8 becomes U+FFFD and NUL becomes U+2400, so that any file and wire can hold it.

    Other control characters stay, escape sequences too: whoever draws on a terminal leaves them out there.
    """
    return data.decode("utf-8", "replace").replace("\0", "\u2400")


def replace_unstorable(text: str) -> str:
    """Return the text as any file and wire can hold it: lone surrogates become `?`, NUL becomes U+2400."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\u2400")


def take_first_bytes(text: str, size: int) -> str:
    """Return the longest start of the text that is at most `size` bytes of UTF-8."""
    return text if len(text) * 4 <= size else text.encode()[:size].decode("utf-8", "ignore")


def take_last_bytes(text: str, size: int) -> str:
    """Return the longest end of the text that is at most `size` bytes of UTF-8."""
    return text if len(text) * 4 <= size else text.encode()[-size:].decode("utf-8", "ignore")


def count_lines(text: str) -> int:
    """Return the number of lines; a last one need not end in a line feed."""
    return text.count("\n") + (1 if text and not text.endswith("\n") else 0)


def drop_partial_secret(start: bytes, output_filter: OutputFilter) -> bytes:
    """Return the start of a text without the start of a secret at its end, which would pass for an ordinary word."""
    output_filter.feed(start)
    return start[: len(start) - len(output_filter.flush())]


def limit_text(text: str, output_filter: OutputFilter) -> str:
    """Return the text within the limits of a result and of its notes; when it is cut it says how much there was."""
    total, lines = len(text.encode()), count_lines(text)
    if total <= MAX_RESULT_BYTES + MAX_NOTE_BYTES and lines <= MAX_RESULT_LINES + MAX_NOTE_LINES:
        return text
    start = drop_partial_secret(take_first_bytes(text, MAX_RESULT_BYTES).encode(), output_filter).decode(
        "utf-8", "ignore"
    )
    kept = "\n".join(start.split("\n")[:MAX_RESULT_LINES])
    return f"{kept.rstrip()}\n[cut: this is the start of {total:,} bytes in {lines:,} lines; ask for less at a time]"


def limit_diff(diff: str) -> str:
    """Return the diff within `MAX_DIFF_BYTES`, cut after a whole line; when it is cut it says so."""
    total = len(diff.encode())
    if total <= MAX_DIFF_BYTES:
        return diff
    kept = take_first_bytes(diff, MAX_DIFF_BYTES)
    return kept[: kept.rfind("\n") + 1] + f"[diff cut: this is the start of {total:,} bytes]\n"


def format_size(size: int) -> str:
    """Return a number of bytes as it is told."""
    return f"{size:,} byte{'' if size == 1 else 's'}"


def pluralize(count: int, noun: str) -> str:
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
            self._kept = self.list_smallest()

    def list_smallest(self) -> list[T]:
        """Return the smallest, in order."""
        return sorted(self._kept)[: self._limit]
