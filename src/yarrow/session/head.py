"""A session at a glance, for lists: read from the first lines and the last kilobytes of its file."""

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
"""Lines from the start among which the header and the first text of the user are looked for."""
TAIL_WINDOWS = (8 * 1024, 1024 * 1024)
"""Bytes from the end in which the last record is looked for: the first number, and if there is none the second."""
MAX_TITLE_CHARACTERS = 120
"""Characters of a title."""


class SessionHead(Struct, frozen=True):
    """What a list shows of a session."""

    id: str
    """As the file is named, which is what counts."""
    path: Path
    header: Header
    name: str
    """The last one given, as far as the first lines and the last kilobytes tell; `last_name` knows better."""
    title: str
    """The beginning of the first text of the user, on one line; or why the file cannot be read."""
    updated: float
    """Time of the last record or, if that is later, of the header, as in a copy; in seconds since 1970.

    That of the file's last change where there is none.
    """


def read_head(path: Path) -> SessionHead:
    """Return what the first and the last lines of a session file tell.

    Raises `NotFound` when there is no such file and `StorageError` when it is empty or cannot be read.
    """
    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            first = list(_read_first_records(stream))
            last = _read_last_records(stream, status.st_size)
    except FileNotFoundError:
        raise NotFound(f"there is no session file {path}") from None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {describe_os_error(error)}") from error
    if status.st_size == 0:
        raise StorageError(f"{path}, line 1: the file is empty, so there is no session in it")
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
    """Return the name given last by a change anywhere in a session file, None when there is none.

    Looks at every byte in the worst case, from the end. Raises `OSError`.
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
        stream.seek(start)  # in the middle of a line, perhaps, which is then no good
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
    """Return the beginning of a text as a title has it: on one line, of `MAX_TITLE_CHARACTERS` characters at most."""
    return " ".join(text.strip()[: 2 * MAX_TITLE_CHARACTERS].split())[:MAX_TITLE_CHARACTERS]


def _find_time(latest_first: Iterable[Record | UnknownRecord], otherwise: float) -> float:
    for record in latest_first:
        if not isinstance(record, UnknownRecord):
            try:
                return parse_seconds(record.updated_at if isinstance(record, Header) else record.timestamp)
            except ValueError:
                continue
    return otherwise
