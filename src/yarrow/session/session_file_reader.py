"""Readers of session files: all good lines and reports of bad ones, found text, and the head for lists."""

import io
import mmap
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from msgspec import UNSET, Struct

from yarrow.errors import NotFound, StorageError
from yarrow.message import Message, Role
from yarrow.session.blobs import BlobReader
from yarrow.session.disk_access import describe_os_error
from yarrow.session.ids import format_timestamp, parse_seconds
from yarrow.session.line_codec import BadLine, UnknownRecord, read_lines
from yarrow.session.record import Change, Header, Record

READ_BUFFER_BYTES = 64 * 1024
"""Buffer size in bytes; the default of 8 KiB makes reading take twice as long."""
MAX_DESCRIBED_PROBLEMS = 100
"""Maximum skipped lines described in a report; the rest are counted."""
MAX_HEAD_LINES = 16
"""Lines from the start that are searched for the header and the user's first text."""
TAIL_WINDOWS = (8 * 1024, 1024 * 1024)
"""Bytes from the end that are searched for the last record; the second size is used if the first finds none."""
MAX_TITLE_CHARACTERS = 120
"""Maximum characters of a title."""
_ATTACHMENT = re.compile(r"(?:\A|\n\n)<(?:stdin|file path=\"([^\"\n]*)\")>\n")
"""Label of an attached file or of piped input in a prompt."""
MAX_LABEL_SEARCH_CHARACTERS = 8_192
"""Maximum characters of a prompt that are searched for the first label."""
MAX_LINE_CHARACTERS = 100
"""Maximum characters of a found line."""
_MAX_LEAD_CHARACTERS = 30
"""Maximum characters shown before the match."""


class StoredRecord(Struct, frozen=True, gc=False):
    """A record with the position of its raw line in the file, in bytes and without the line ending."""

    value: Record | UnknownRecord
    offset: int
    length: int


class SkippedLine(Struct, frozen=True):
    """A line that could not be used; `line_number` counts from 1."""

    line_number: int
    reason: str
    partly: bool = False
    """True if whole records of the line were used."""

    def describe(self) -> str:
        """Return the problem as a sentence."""
        outcome = "; its whole records were kept" if self.partly else " and was skipped"
        return f"Line {self.line_number} of the session {self.reason}{outcome}."


class LoadReport(Struct, frozen=True):
    """Problems of a file that was readable nevertheless."""

    skipped: tuple[SkippedLine, ...] = ()
    """The first `MAX_DESCRIBED_PROBLEMS` skipped lines."""
    skipped_count: int = 0
    unsealed: int = 0
    """Number of good lines without a checksum."""
    header: str = ""
    """Problem of the header, as a sentence."""
    missing: tuple[str, ...] = ()
    """The first `MAX_DESCRIBED_PROBLEMS` missing or damaged blobs, as sentences."""
    missing_count: int = 0

    def warnings(self) -> tuple[str, ...]:
        """Return warnings for the user, as sentences; empty if there were no problems."""
        sentences = [line.describe() for line in self.skipped]
        if rest := self.skipped_count - len(self.skipped):
            sentences.append(f"{rest} more lines of the session were skipped.")
        if self.unsealed:
            lines = "1 line" if self.unsealed == 1 else f"{self.unsealed} lines"
            sentences.append(f"{lines} of the session without a checksum: damage there cannot be detected.")
        if self.header:
            sentences.append(self.header)
        sentences += self.missing
        if rest := self.missing_count - len(self.missing):
            sentences.append(f"{rest} more blobs of the session are missing or damaged.")
        return tuple(sentences)


class StoredSession(Struct, frozen=True):
    """A session as read from its file."""

    path: Path
    header: Header
    records: tuple[StoredRecord, ...]
    """All good lines except the header, in order."""
    report: LoadReport
    size: int
    """Bytes read from the file."""

    def read_raw_lines(self) -> Iterator[bytes]:
        """Yield the raw line of each record, read again from the file, including unknown fields."""
        with self.path.open("rb") as stream:
            for record in self.records:
                stream.seek(record.offset)
                yield stream.read(record.length)


def load_session(path: Path) -> StoredSession:
    """Return the readable contents of a session file.

    Raises `NotFound` if the file does not exist and `StorageError` if it is unreadable or has no good line.
    """
    try:
        with path.open("rb", buffering=READ_BUFFER_BYTES) as stream:
            return _read_session(path, stream)
    except FileNotFoundError:
        raise NotFound(f"session file {path} not found") from None
    except OSError as error:
        raise StorageError(f"cannot read {path}: {describe_os_error(error)}") from error


def _read_session(path: Path, stream: BinaryIO) -> StoredSession:
    records: list[StoredRecord] = []
    skipped: list[SkippedLine] = []
    missing: list[str] = []
    blobs = BlobReader(path)
    skipped_count = unsealed = missing_count = 0
    header: Header | None = None
    header_complaint = ""
    for line in read_lines(stream):
        value = line.value
        if isinstance(value, BadLine):
            skipped_count += 1
            if skipped_count <= MAX_DESCRIBED_PROBLEMS:
                skipped.append(SkippedLine(line.number, value.reason, value.partly))
            continue
        unsealed += not line.sealed
        if header is None and isinstance(value, Header):
            header = value
            if line.number > 1:
                header_complaint = f"The header of the session is on line {line.number} instead of line 1."
        else:
            value, complaints = blobs.inline_blobs(value)
            records.append(StoredRecord(value, line.offset, len(line.raw)))
            if complaints:
                missing_count += len(complaints)
                shown = complaints[: MAX_DESCRIBED_PROBLEMS - len(missing)]
                missing += (f"A block on line {line.number} {each}." for each in shown)
    if header is None:
        if not records:
            raise _empty_error(path, skipped)
        header = make_default_header(path.stem, os.fstat(stream.fileno()).st_mtime, records[0].value)
        header_complaint = "The session has no header: its directory, model and settings are unknown."
    report = LoadReport(tuple(skipped), skipped_count, unsealed, header_complaint, tuple(missing), missing_count)
    return StoredSession(path, header, tuple(records), report, stream.tell())


def _empty_error(path: Path, skipped: list[SkippedLine]) -> StorageError:
    if not skipped:
        return StorageError(f"{path} is empty and contains no session")
    first = skipped[0]
    return StorageError(f"{path}, line {first.line_number} {first.reason}, and no other line can be read")


def make_default_header(session_id: str, created: float, first: Record | UnknownRecord | None = None) -> Header:
    """Return a header for a session without one.

    Its creation time is the first record's, or else `created` in seconds.
    """
    created_at = format_timestamp(created)
    if first is not None and not isinstance(first, UnknownRecord | Header):
        created_at = first.timestamp
    return Header(id=session_id, cwd="", created_at=created_at, updated_at=created_at)


def find_line(path: Path, text: str) -> str | None:
    """Return the first line of a message in a session file that contains `text`, ignoring case.

    A long line is truncated around the match. Returns None if no message matches. Raises `OSError`.
    """
    wanted = text.casefold()
    # Skip most lines without decoding: ASCII lines (so that changing case keeps lengths) that lack the longest part of
    # the text that JSON does not escape.
    plain = max(_split_plain_parts(text), key=len, default="").lower().encode()
    with path.open("rb") as stream:
        for block in stream:
            if plain not in block.lower() and block.isascii() and b"\\u" not in block and b'"blob"' not in block:
                continue
            for line in read_lines(io.BytesIO(block)):
                if isinstance(line.value, BadLine):
                    continue
                record, _ = BlobReader(path).inline_blobs(line.value)
                if isinstance(record, Message):
                    said = "\n".join((record.text, record.thinking))
                    if wanted in said.casefold():
                        return _excerpt(said, wanted)
    return None


def _excerpt(said: str, wanted: str) -> str:
    lines = said.splitlines()
    # The searched text may itself have several lines.
    first = wanted.splitlines()[0] if wanted.splitlines() else ""
    line = " ".join(next((line for line in lines if first in line.casefold()), "").split())
    at = max(0, line.casefold().find(" ".join(first.split())))
    start = 0 if len(line) <= MAX_LINE_CHARACTERS else max(0, at - _MAX_LEAD_CHARACTERS)
    end = start + MAX_LINE_CHARACTERS
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def _split_plain_parts(text: str) -> list[str]:
    """Return the runs of ASCII letters, digits and spaces."""
    kept = (
        character if character.isascii() and (character.isalnum() or character == " ") else "\0" for character in text
    )
    return [part for part in "".join(kept).split("\0") if part]


class SessionHead(Struct, frozen=True):
    """Data of a session shown in a list."""

    id: str
    """The id in the file name, which is authoritative."""
    path: Path
    header: Header
    name: str
    """The last name found in the first lines and last kilobytes; `find_last_name` is exact."""
    title: str
    """The start of the user's first text, on one line; or the reason why the file cannot be read."""
    updated: float
    """Time of the last record or, if later (as in a copy), of the header, in seconds since 1970.

    The file's modification time if it has neither.
    """


def read_head(path: Path) -> SessionHead:
    """Return the summary from the first and last lines of a session file.

    Raises `NotFound` if the file does not exist and `StorageError` if it is empty or unreadable.
    """
    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            first = list(_read_first_records(stream))
            last = _read_last_records(stream, status.st_size)
    except FileNotFoundError:
        raise NotFound(f"session file {path} not found") from None
    except OSError as error:
        raise StorageError(f"cannot read {path}: {describe_os_error(error)}") from error
    if status.st_size == 0:
        raise StorageError(f"{path} is empty and contains no session")
    header = next((record for record in first if isinstance(record, Header)), None) or make_default_header(
        path.stem, status.st_mtime, first[0] if first else None
    )
    names = [record.name for record in (*first, *last) if isinstance(record, Change) and record.name is not UNSET]
    return SessionHead(
        id=path.stem,
        path=path,
        header=header,
        name=str(names[-1]) if names else header.name,
        title=_find_title(first),
        updated=max(_find_time((header,), 0.0), _find_time(reversed(last), status.st_mtime)),
    )


def find_last_name(path: Path) -> str | None:
    """Return the session's last name change anywhere in its file; None if there is none.

    Searches from the end, and reads the whole file in the worst case. Raises `OSError`.
    """
    with path.open("rb") as stream:
        if os.fstat(stream.fileno()).st_size == 0:
            return None
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            end = len(data)
            while (start := data.rfind(b'{"kind":"change"', 0, end)) >= 0:
                data.seek(start)
                for record in _read_good_records(io.BytesIO(data.readline())):
                    if isinstance(record, Change) and record.name is not UNSET:
                        return record.name
                end = start
    return None


def _read_first_records(stream: BinaryIO) -> Iterator[Record | UnknownRecord]:
    header_seen = False
    for line in read_lines(stream):
        if not isinstance(line.value, BadLine):
            yield line.value
            header_seen = header_seen or isinstance(line.value, Header)
        if (header_seen and _is_prompt(line.value)) or line.number >= MAX_HEAD_LINES:
            return


def _read_last_records(stream: BinaryIO, size: int) -> list[Record | UnknownRecord]:
    for window in TAIL_WINDOWS:
        start = max(0, size - window)
        stream.seek(start)  # this may be in the middle of a line, which then fails to parse
        records = list(_read_good_records(io.BytesIO(stream.read(window))))
        if start == 0 or any(not isinstance(record, UnknownRecord) for record in records):
            return records
    return []


def _read_good_records(stream: BinaryIO) -> Iterator[Record | UnknownRecord]:
    return (line.value for line in read_lines(stream) if not isinstance(line.value, BadLine))


def _is_prompt(record: object) -> bool:
    return isinstance(record, Message) and record.role is Role.USER and bool(record.text.strip())


def _find_title(records: Iterable[Record | UnknownRecord]) -> str:
    for record in records:
        if isinstance(record, Message) and _is_prompt(record):
            return make_title(find_words(record))
    return ""


def find_words(message: Message) -> str:
    """Return what the user typed for a message: its command, or its text without attached files and piped input."""
    if message.typed.startswith("/"):
        return message.typed
    text = message.text.strip()
    found = _ATTACHMENT.search(text, 0, MAX_LABEL_SEARCH_CHARACTERS)
    if found is None:
        return text
    return text[: found.start()] or (f"@{found[1]}" if found[1] else text)


def make_title(text: str) -> str:
    """Return the start of a text as a title: on one line, of at most `MAX_TITLE_CHARACTERS` characters."""
    return " ".join(text.strip()[: 2 * MAX_TITLE_CHARACTERS].split())[:MAX_TITLE_CHARACTERS]


def _find_time(latest_first: Iterable[Record | UnknownRecord], otherwise: float) -> float:
    for record in latest_first:
        if not isinstance(record, UnknownRecord):
            try:
                return parse_seconds(record.updated_at if isinstance(record, Header) else record.timestamp)
            except ValueError:
                continue
    return otherwise
