"""Hits of a search by file, and their bounded report, for both ways to search."""

from collections.abc import Callable

from msgspec import Struct

from yarrow.tool.base import OutputFilter
from yarrow.tool.file_content import FALLBACK_ENCODING
from yarrow.tool.paths import quote_path
from yarrow.tool.result_limits import MAX_RESULT_BYTES, MAX_RESULT_LINES, drop_partial_secret, pluralize

MAX_LINE_CHARACTERS = 500
"""Maximum characters shown of a line."""
LEAD_CHARACTERS = 200
"""Characters shown before a match that is not near the beginning of a long line."""
MAX_SECRET_CHARACTERS = 1 << 19
"""Characters before the shown ones that are searched for a secret: a variable has at most a quarter as many."""
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
        self._places: dict[int, int] = {}

    def add(self, number: int, line: str, *, is_match: bool, at: int = 0) -> None:
        """Add a line, in order; `at` is the index of its first match in characters."""
        self.matches += is_match
        if self.matches <= self._limit:
            self.lines.append((number, line, is_match))
            if at and len(line) > MAX_LINE_CHARACTERS:
                self._places[number] = at

    def find_place(self, number: int) -> int:
        """Return the index of the first match in a long line; 0 for other lines."""
        return self._places.get(number, 0)


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
            if self._is_full:
                break
            mark = ":" if is_match else "-"
            gap = "--\n" if self._query.context and self._shown and number != before + 1 else ""
            shown = shorten_line(line, hits.find_place(number), self._output_filter)
            self._append_line(f"{gap}{path}{mark}{number}{mark}{shown}", is_match=is_match)
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


def shorten_line(line: str, at: int, output_filter: Callable[[], OutputFilter]) -> str:
    """Return at most `MAX_LINE_CHARACTERS` of a line, around the index `at`, with notes about what is omitted."""
    if len(line) <= MAX_LINE_CHARACTERS:
        return line
    start = at - LEAD_CHARACTERS if at > MAX_LINE_CHARACTERS - LEAD_CHARACTERS else 0
    start = min(start, len(line) - MAX_LINE_CHARACTERS)
    # The rest of a secret whose beginning is omitted would not be recognized, so the shown part begins with it.
    begin = max(0, start - MAX_SECRET_CHARACTERS)
    start = begin + len(_drop_partial_secret(line[begin:start], output_filter()))
    shown = _drop_partial_secret(line[start : start + MAX_LINE_CHARACTERS], output_filter())
    before = f"[{start:,} characters ...] " if start else ""
    left = len(line) - start - len(shown)
    return f"{before}{shown}{f' [... {left:,} more characters]' if left else ''}"


def _drop_partial_secret(text: str, output_filter: OutputFilter) -> str:
    return drop_partial_secret(text.encode("utf-8", "surrogatepass"), output_filter).decode("utf-8", "ignore")


def count_characters(line: bytes, end: int) -> int:
    """Return the index in the decoded line of a byte of the line."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return end
    return len(line[:end].decode("utf-8", "ignore"))


def decode_line(line: bytes) -> str:
    """Return a line without its line ending, decoded as Latin-1 if it is not UTF-8."""
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode(FALLBACK_ENCODING)
