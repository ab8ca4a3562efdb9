"""Size limits of results, and the sanitizing of text for them."""

from typing import Generic, TypeVar

from yarrow.tool.base import OutputFilter

T = TypeVar("T", str, list[str])

MAX_RESULT_LINES = 2_000
MAX_RESULT_BYTES = 51_200
"""Maximum lines, and bytes of UTF-8 (50 KiB), of a result; whichever is reached first."""
MAX_NOTE_LINES = 10
MAX_NOTE_BYTES = 4_096
"""Additional lines and bytes for a tool's own notes, such as what was omitted and where to find it."""
MAX_PROGRESS_BYTES = 8_192
"""Maximum bytes of one piece of partial output; longer ones keep their end."""
MAX_DIFF_BYTES = 51_200
"""Maximum bytes of a diff; longer ones keep their start."""


def decode_output(data: bytes) -> str:
    """Decode output so that any file or message can contain it: invalid UTF-8 becomes U+FFFD, NUL becomes U+2400.

    Other control characters and escape sequences are kept; the terminal UI removes them when it renders.
    """
    return data.decode("utf-8", "replace").replace("\0", "\u2400")


def replace_unstorable(text: str) -> str:
    """Return the text as any file or message can contain it: lone surrogates become `?`, NUL becomes U+2400."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\u2400")


def take_first_bytes(text: str, size: int) -> str:
    """Return the longest prefix of the text that has at most `size` bytes in UTF-8."""
    return text if len(text) * 4 <= size else text.encode()[:size].decode("utf-8", "ignore")


def take_last_bytes(text: str, size: int) -> str:
    """Return the longest suffix of the text that has at most `size` bytes in UTF-8."""
    return text if len(text) * 4 <= size else text.encode()[-size:].decode("utf-8", "ignore")


def count_lines(text: str) -> int:
    """Return the number of lines; the last one need not end in a line feed."""
    return text.count("\n") + (1 if text and not text.endswith("\n") else 0)


def drop_partial_secret(start: bytes, output_filter: OutputFilter) -> bytes:
    """Return the start of a text without a partial secret at its end, which would not be recognized as one."""
    output_filter.feed(start)
    return start[: len(start) - len(output_filter.flush())]


def limit_text(text: str, output_filter: OutputFilter) -> str:
    """Truncate the text to the limits of a result and its notes; the note added states the full size."""
    total, lines = len(text.encode()), count_lines(text)
    if total <= MAX_RESULT_BYTES + MAX_NOTE_BYTES and lines <= MAX_RESULT_LINES + MAX_NOTE_LINES:
        return text
    start = drop_partial_secret(take_first_bytes(text, MAX_RESULT_BYTES).encode(), output_filter).decode(
        "utf-8", "ignore"
    )
    kept = "\n".join(start.split("\n")[:MAX_RESULT_LINES])
    return f"{kept.rstrip()}\n[truncated: {total:,} bytes in {lines:,} lines in total; request less at a time]"


def limit_diff(diff: str) -> str:
    """Truncate the diff to `MAX_DIFF_BYTES` after a complete line, with a note."""
    total = len(diff.encode())
    if total <= MAX_DIFF_BYTES:
        return diff
    kept = take_first_bytes(diff, MAX_DIFF_BYTES)
    return kept[: kept.rfind("\n") + 1] + f"[diff truncated: {total:,} bytes in total]\n"


def format_size(size: int) -> str:
    """Format a number of bytes."""
    return f"{size:,} byte{'' if size == 1 else 's'}"


def pluralize(count: int, noun: str) -> str:
    """Return a count with its noun: `1 match`, `2 matches`, `3 lines`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun}{'es' if noun.endswith(('ch', 's')) else 's'}"


class Smallest(Generic[T]):
    """Keeps the smallest `limit` items and counts all."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: list[T] = []
        self.count = 0
        """Number of items added."""

    def add(self, item: T) -> None:
        """Add an item; at most twice the limit are held at a time."""
        self.count += 1
        self._kept.append(item)
        if len(self._kept) >= 2 * self._limit:
            self._kept = self.list_smallest()

    def list_smallest(self) -> list[T]:
        """Return the smallest items, sorted."""
        return sorted(self._kept)[: self._limit]
