"""Reader of session files: keeps every good line, reports every bad one, and finds text."""

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from yarrow.errors import NotFound, StorageError
from yarrow.message import Message
from yarrow.session.blobs import BlobReader
from yarrow.session.disk import describe_os_error
from yarrow.session.ids import format_timestamp
from yarrow.session.line import BadLine, UnknownRecord, read_lines
from yarrow.session.record import Header, Record

READ_BUFFER_BYTES = 64 * 1024
"""Buffer size in bytes; the default of 8 KiB makes reading take twice as long."""
MAX_DESCRIBED_PROBLEMS = 100
"""Maximum skipped lines described in a report; the rest are counted."""


class StoredRecord(Struct, frozen=True, gc=False):
    """A record with the position of its raw line in the file, in bytes and without the line ending."""

    value: Record | UnknownRecord
    offset: int
    length: int


class SkippedLine(Struct, frozen=True):
    """A line that could not be used; `line_number` counts from 1."""

    line_number: int
    reason: str


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
        sentences = [f"Line {line.line_number} of the session {line.reason} and was skipped." for line in self.skipped]
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
                skipped.append(SkippedLine(line.number, value.reason))
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


MAX_LINE_CHARACTERS = 100
"""Maximum characters of a found line."""
_MAX_LEAD_CHARACTERS = 30
"""Maximum characters shown before the match."""


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
