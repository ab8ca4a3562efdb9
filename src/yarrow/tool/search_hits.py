"""Hits of a search by file, and their bounded report, for both ways to search."""

from collections.abc import Callable

from msgspec import Struct

from yarrow.tool.base import OutputFilter
from yarrow.tool.file_content import FALLBACK_ENCODING
from yarrow.tool.paths import quote_path
from yarrow.tool.result_limits import MAX_RESULT_BYTES, MAX_RESULT_LINES, drop_partial_secret, pluralize

MAX_LINE_CHARACTERS = 500
"""Maximum characters shown of a line."""
MAX_SEARCH_SECONDS = 30.0
"""Time limit of a search in seconds."""
MAX_SEARCHED_BYTES = 67_108_864
"""Maximum bytes of a searched file, 64 MiB; larger files are skipped."""
MAX_COUNTED_MATCHES = 10_000
"""Matches, shown or not, after which a search ends."""


class SearchQuery(Struct, frozen=True):
    """Parameters of a search."""

    pattern: str
    literal: bool
    ignore_case: bool
    context: int
    limit: int
    """Maximum matching lines shown."""


class FileHits:
    """Matching lines of one file with their context, kept as long as they can still be shown."""

    def __init__(self, path: str, limit: int) -> None:
        self.path = path
        self.matches = 0
        self.is_binary = False
        self.lines: list[tuple[int, str, bool]] = []
        """Line number from 1, text, and whether it matches."""
        self._limit = limit

    def add(self, number: int, line: str, *, is_match: bool) -> None:
        """Add a line, in order."""
        self.matches += is_match
        if self.matches <= self._limit:
            self.lines.append((number, line, is_match))


class HitReport:
    """Formats hits up to a limit and counts the rest."""

    def __init__(self, query: SearchQuery, prefix: str, output_filter: Callable[[], OutputFilter]) -> None:
        self._query = query
        self._prefix = prefix
        self._output_filter = output_filter
        self._shown: list[str] = []
        self._shown_bytes = 0
        self._is_full = False
        self._shown_matches = 0
        self._matches = 0
        self._files = 0

    def add(self, hits: FileHits) -> bool:
        """Add the hits of a file; return whether more are wanted."""
        self._files += 1
        path = quote_path(self._prefix + hits.path)
        if hits.is_binary:
            self._matches += 1
            self._append_line(f"{path}: binary file matches", is_match=True)
            return self._matches < MAX_COUNTED_MATCHES
        self._matches += hits.matches
        before, last_match = -1, -1
        for number, line, is_match in hits.lines:
            if not is_match and self._shown_matches >= self._query.limit and number > last_match + self._query.context:
                break
            mark = ":" if is_match else "-"
            gap = "--\n" if self._query.context and self._shown and number != before + 1 else ""
            self._append_line(
                f"{gap}{path}{mark}{number}{mark}{shorten_line(line, self._output_filter)}", is_match=is_match
            )
            before, last_match = number, number if is_match else last_match
        return self._matches < MAX_COUNTED_MATCHES

    def is_empty(self) -> bool:
        """Return whether no match was found."""
        return not self._matches

    def format(self, notes: list[str]) -> str:
        """Return the report, followed by notes."""
        if not self._matches:
            return "\n".join([f"No matches for {self._query.pattern!r}.", *(f"[{note}]" for note in notes)])
        if self._shown_matches < self._matches:
            more = "at least " if self._matches >= MAX_COUNTED_MATCHES else ""
            total = f"{more}{self._matches:,} matches in {pluralize(self._files, 'file')}"
            notes = [f"{self._shown_matches:,} of {total}; narrow the search or set limit", *notes]
        return "\n".join([*self._shown, *(f"[{note}]" for note in notes)])

    def _append_line(self, line: str, *, is_match: bool) -> None:
        size = len(line.encode("utf-8", "replace")) + 1
        self._is_full |= (  # once full, drop everything after it too, so that there are no gaps
            len(self._shown) >= MAX_RESULT_LINES
            or self._shown_bytes + size > MAX_RESULT_BYTES
            or (is_match and self._shown_matches >= self._query.limit)
        )
        if self._is_full:
            return
        self._shown.append(line)
        self._shown_bytes += size
        self._shown_matches += is_match


def shorten_line(line: str, output_filter: Callable[[], OutputFilter]) -> str:
    """Return at most `MAX_LINE_CHARACTERS` of a line, with a note if it is truncated."""
    if len(line) <= MAX_LINE_CHARACTERS:
        return line
    shown = drop_partial_secret(line[:MAX_LINE_CHARACTERS].encode("utf-8", "surrogatepass"), output_filter()).decode(
        "utf-8", "ignore"
    )
    return f"{shown} [... {len(line) - len(shown):,} more characters]"


def decode_line(line: bytes) -> str:
    """Return a line without its line ending, decoded as Latin-1 if it is not UTF-8."""
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode(FALLBACK_ENCODING)
