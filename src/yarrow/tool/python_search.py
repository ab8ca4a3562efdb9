"""Search in files without ripgrep, with a time limit per pattern."""

import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from yarrow.policy.symlink_free_open import READ_FLAGS, open_beneath
from yarrow.tool.file_content import UTF8_BOM, UTF16_BOMS
from yarrow.tool.gitignore_walk import walk
from yarrow.tool.paths import quote_path
from yarrow.tool.result_limits import Smallest
from yarrow.tool.search_hits import (
    MAX_SEARCH_SECONDS,
    MAX_SEARCHED_BYTES,
    FileHits,
    SearchQuery,
    count_characters,
    decode_line,
)

MAX_NAMED_FILES = 10
"""Maximum files named in the note; the rest are counted."""


class LargeFiles:
    """Files of one search that are too large, by their path relative to the searched directory."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._files: Smallest[list[str]] = Smallest(MAX_NAMED_FILES)

    def add(self, name: str) -> None:
        """Add a file."""
        self._files.add(name.split("/"))

    def add_from(self, root: Path, names: Sequence[str], wanted: Callable[[str], bool]) -> None:
        """Add those of the named files of a real directory that are too large and wanted."""
        for name in names:
            if _read_size(f"{root}/{name}") > MAX_SEARCHED_BYTES and wanted(name) and is_large(root / name):
                self.add(name)

    def format_note(self) -> str:
        """Return the note; empty if no file is too large."""
        if not self._files.count:
            return ""
        names = [quote_path(self._prefix + "/".join(parts)) for parts in self._files.list_smallest()]
        more = f" and {self._files.count - len(names):,} more" if self._files.count > len(names) else ""
        return f"{', '.join(names)}{more} not searched: larger than {MAX_SEARCHED_BYTES:,} bytes; use bash to search"


def is_large(path: Path) -> bool:
    """Return whether a regular file, reached without symlinks, is too large to search."""
    try:
        descriptor = open_beneath(Path(path.anchor), path, READ_FLAGS)
    except OSError:
        return False
    try:
        status = os.fstat(descriptor)
        return stat.S_ISREG(status.st_mode) and status.st_size > MAX_SEARCHED_BYTES
    finally:
        os.close(descriptor)


def _read_size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except (OSError, ValueError):
        return 0


MAX_PATTERN_SECONDS = 1.0
"""Time limit in seconds for a pattern on one line; the engine enforces it and releases the GIL."""
LINE_SENSITIVE_PARTS = (r"\A", r"\Z", r"\z", r"\G", "(?")
"""Parts of a pattern that mean something else in a whole text than in a single line."""


class SearchError(Exception):
    """The pattern cannot be used; the message explains why to the model."""


class Searcher:
    """A compiled pattern."""

    def __init__(self, query: SearchQuery, large: LargeFiles | None = None) -> None:
        """Files that are too large are added to `large`. Raises SearchError if the pattern is invalid."""
        import regex

        self._large = large
        self._query = query
        pattern = regex.escape(query.pattern) if query.literal else query.pattern
        flags = regex.MULTILINE | (regex.IGNORECASE if query.ignore_case else 0)
        try:
            self._pattern = regex.compile(pattern, flags)
        except regex.error as error:
            raise SearchError(f"Invalid pattern {query.pattern!r}: {error}. For plain text, set literal.") from error
        self._tests_whole_text = query.literal or not any(part in query.pattern for part in LINE_SENSITIVE_PARTS)

    def search(self, path: Path, name: str, stop: threading.Event) -> FileHits | None:
        """Return the hits of a file under the label `name`; None if there are none or it cannot be read.

        Raises SearchError if the pattern takes too long.
        """
        data = _read_file(path)
        if data is None:
            if self._large is not None and is_large(path):
                self._large.add(name)
            return None
        hits = FileHits(name, self._query.limit)
        hits.is_binary = b"\0" in data and not data.startswith(UTF16_BOMS)
        text = _decode_lines(data)
        if self._may_match(text):
            self._search_lines(text, hits, stop)
        return hits if hits.matches else None

    def _search_lines(self, text: str, hits: FileHits, stop: threading.Event) -> None:
        waiting: deque[tuple[int, str]] = deque(maxlen=self._query.context)
        after = 0
        for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
            if stop.is_set():
                return
            if (at := self._find_match(line)) is not None:
                while waiting:
                    _add_line(hits, *waiting.popleft(), is_match=False)
                _add_line(hits, number, line, is_match=True, at=at)
                after = self._query.context
            elif after:
                _add_line(hits, number, line, is_match=False)
                after -= 1
            else:
                waiting.append((number, line))

    def _may_match(self, text: str) -> bool:
        """Return whether any line can match. Tests the whole text, which is many times faster than line by line."""
        if not self._tests_whole_text:
            return True
        try:
            return self._pattern.search(text, timeout=MAX_PATTERN_SECONDS, concurrent=True) is not None
        except TimeoutError:
            self._tests_whole_text = False  # for such a pattern it is only slower
            return True

    def _find_match(self, line: str) -> int | None:
        """Return the index of the first match in a line; None if there is none."""
        try:
            found = self._pattern.search(line, timeout=MAX_PATTERN_SECONDS, concurrent=True)
        except TimeoutError as error:
            raise SearchError(
                f"The pattern {self._query.pattern!r} takes too long. Avoid nested repetition."
            ) from error
        return None if found is None else found.start()


def search_directory(
    root: Path, searcher: Searcher, stop: threading.Event, *, wanted: Callable[[str], bool]
) -> Iterator[FileHits]:
    """Yield the hits below a real directory, in order, from files whose relative path is wanted.

    Raises SearchError, and TimeoutError after `MAX_SEARCH_SECONDS`.
    """
    deadline = time.monotonic() + MAX_SEARCH_SECONDS
    for entry in walk(root, stop):
        if time.monotonic() > deadline:
            raise TimeoutError
        if not entry.is_dir and wanted(entry.path):
            hits = searcher.search(root / entry.path, entry.path, stop)
            if hits is not None:
                yield hits


def contains_hits(path: Path, hits: FileHits) -> bool:
    """Return whether a file, reached without symlinks, contains the lines of the hits."""
    data = _read_file(path)
    if data is None:
        return False
    lines = _decode_lines(data).removesuffix("\n").split("\n")
    return all(
        0 < number <= len(lines) and decode_line(lines[number - 1].encode("utf-8", "surrogateescape")) == line
        for number, line, _ in hits.lines
    )


def _read_file(path: Path) -> bytes | None:
    """Return the content of a regular file; None if it is not one, is too large, or is reached through a symlink."""
    try:
        with os.fdopen(open_beneath(Path(path.anchor), path, READ_FLAGS), "rb") as file:
            status = os.fstat(file.fileno())
            is_fit = stat.S_ISREG(status.st_mode) and status.st_size <= MAX_SEARCHED_BYTES
            return file.read(MAX_SEARCHED_BYTES) if is_fit else None
    except OSError:
        return None


def _decode_lines(data: bytes) -> str:
    """Decode a file so that each line can be encoded back losslessly. NUL and CR LF end a line."""
    if data.startswith(UTF16_BOMS):
        text = data.decode("utf-16", "replace")
    else:
        text = data.removeprefix(UTF8_BOM).replace(b"\0", b"\n").decode("utf-8", "surrogateescape")
    return text.replace("\r\n", "\n")


def _add_line(hits: FileHits, number: int, line: str, *, is_match: bool, at: int = 0) -> None:
    raw = line.encode("utf-8", "surrogateescape")
    place = count_characters(raw, len(line[:at].encode("utf-8", "surrogateescape"))) if at else 0
    hits.add(number, decode_line(raw), is_match=is_match, at=place)
