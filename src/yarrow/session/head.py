"""Summary of a session for lists, read from the first lines and the last kilobytes of its file."""

import io
import mmap
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from msgspec import UNSET, Struct

from yarrow.errors import NotFound, StorageError
from yarrow.message import Message, Role
from yarrow.session.disk import describe_os_error
from yarrow.session.ids import parse_seconds
from yarrow.session.line import BadLine, UnknownRecord, read_lines
from yarrow.session.reader import make_default_header
from yarrow.session.record import Change, Header, Record

MAX_HEAD_LINES = 16
"""Lines from the start that are searched for the header and the user's first text."""
TAIL_WINDOWS = (8 * 1024, 1024 * 1024)
"""Bytes from the end that are searched for the last record; the second size is used if the first finds none."""
MAX_TITLE_CHARACTERS = 120
"""Maximum characters of a title."""


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
            while (start := data.rfind(b'\n{"kind":"change"', 0, end)) >= 0:
                data.seek(start + 1)
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
            return make_title(record.text)
    return ""


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
