"""A session that is to be made of others: its header and its records, and how they become lines of a file."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Raw, Struct

from yarrow.errors import StorageError
from yarrow.message import Message
from yarrow.session.blobs import read
from yarrow.session.head import FIRST_LINES
from yarrow.session.lenient import Unknown
from yarrow.session.line import encode, read_lines, resealed, seal
from yarrow.session.reader import Stored
from yarrow.session.record import Header, Record
from yarrow.session.redaction import NOTHING_SECRET, Redactor


class Copied(Struct, frozen=True, gc=False):
    """A record taken over from the session file `path`.

    Where `value` is what is stored there, the line is taken byte for byte; else with the fields that differ replaced.
    """

    path: Path
    stored: Stored
    value: Record | Unknown


class Draft(Struct, frozen=True):
    """A session that is to be made."""

    header: Header
    entries: tuple[Copied | Message, ...]
    """Its records in order: those taken over, and messages that are new."""
    origin: Path | None = None
    """The file whose header is continued, with the fields of it that this version does not know."""

    def records(self) -> Iterator[Record | Unknown]:
        """Yield the records, to be folded into a state."""
        return (entry if isinstance(entry, Message) else entry.value for entry in self.entries)

    def lines(self, redactor: Redactor = NOTHING_SECRET) -> Iterator[tuple[bytes, Path | None]]:
        """Yield the sealed line of each record with the file that it is taken from, if it is; memory: one line.

        A line may name blobs, which are those of that file; it holds no secret. Raises `OSError`, and `StorageError`
        when a file shrank.
        """
        with ExitStack() as stack:
            streams: dict[Path, BinaryIO] = {}
            for entry in self.entries:
                if isinstance(entry, Message):
                    yield encode(redactor.struct(entry)), None
                    continue
                if entry.path not in streams:
                    streams[entry.path] = stack.enter_context(entry.path.open("rb"))
                line = _copy(entry, streams[entry.path])
                yield _discreet(line, entry.path, redactor), entry.path

    def header_line(self, redactor: Redactor = NOTHING_SECRET) -> bytes:
        """Return the sealed line of the header, without secrets.

        Reads the file that it continues and raises `OSError`.
        """
        header = redactor.header(self.header)
        if self.origin is not None:
            with self.origin.open("rb") as stream:
                for line in islice(read_lines(stream), FIRST_LINES):
                    if isinstance(line.value, Header):
                        raw = _discreet(line.raw, self.origin, redactor)
                        return _edited(raw, line.value if raw is line.raw else None, header)
        return encode(header)


def _discreet(line: bytes, path: Path, redactor: Redactor) -> bytes:
    """Return a line of the file `path` without secrets."""
    # Here, since most runs make no session of others.
    from yarrow.session.portable import discreet

    return discreet(line, partial(read, path), redactor)


def _copy(entry: Copied, stream: BinaryIO) -> bytes:
    stored = entry.stored
    stream.seek(stored.offset)
    raw = stream.read(stored.length)
    if len(raw) != stored.length:
        raise StorageError(f"{entry.path} shrank while it was copied; try again")
    if entry.value is stored.value or isinstance(entry.value, Unknown) or isinstance(stored.value, Unknown):
        return resealed(raw)
    return _edited(raw, stored.value, entry.value)


def _edited(raw: bytes, old: Record | None, new: Record) -> bytes:
    """Return the line of `new`; what it has in common with `old`, and what neither knows, keeps its raw bytes.

    Without `old` that is only what `new` does not know.
    """
    try:
        fields = _fields(raw)
    except msgspec.DecodeError:
        return encode(new)  # a damaged line of which only the value could be saved
    before, now = _fields(encode(old)) if old is not None else {}, _fields(encode(new))
    for name in before.keys() - now.keys():
        fields.pop(name, None)
    fields.update((name, value) for name, value in now.items() if before.get(name) != value)
    return seal(msgspec.json.encode(fields))


def _fields(line: bytes) -> dict[str, Raw]:
    """Return the fields of a line but the checksum, each with its raw bytes."""
    fields = msgspec.json.decode(line, type=dict[str, Raw])
    fields.pop("crc32", None)
    return fields
