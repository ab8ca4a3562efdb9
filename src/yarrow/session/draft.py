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
from yarrow.session.blobs import read_blob
from yarrow.session.head import MAX_HEAD_LINES
from yarrow.session.line import UnknownRecord, encode_line, ensure_sealed, read_lines, seal
from yarrow.session.reader import StoredRecord
from yarrow.session.record import Header, Record
from yarrow.session.redaction import NO_REDACTION, Redactor


class CopiedRecord(Struct, frozen=True, gc=False):
    """A record taken over from the session file `path`.

    Where `value` is what is stored there, the line is taken byte for byte; else with the fields that differ replaced.
    """

    path: Path
    stored: StoredRecord
    value: Record | UnknownRecord


class SessionDraft(Struct, frozen=True):
    """A session that is to be made."""

    header: Header
    entries: tuple[CopiedRecord | Message, ...]
    """Its records in order: those taken over, and messages that are new."""
    origin: Path | None = None
    """The file whose header is continued, with the fields of it that this version does not know."""

    def records(self) -> Iterator[Record | UnknownRecord]:
        """Yield the records, to be folded into a state."""
        return (entry if isinstance(entry, Message) else entry.value for entry in self.entries)

    def encode_lines(self, redactor: Redactor = NO_REDACTION) -> Iterator[tuple[bytes, Path | None]]:
        """Yield the sealed line of each record with the file that it is taken from, if it is; memory: one line.

        A line may name blobs, which are those of that file; it holds no secret. Raises `OSError`, and `StorageError`
        when a file shrank.
        """
        with ExitStack() as stack:
            streams: dict[Path, BinaryIO] = {}
            for entry in self.entries:
                if isinstance(entry, Message):
                    yield encode_line(redactor.redact_struct(entry)), None
                    continue
                if entry.path not in streams:
                    streams[entry.path] = stack.enter_context(entry.path.open("rb"))
                line = _copy_line(entry, streams[entry.path])
                yield _redact_line(line, entry.path, redactor), entry.path

    def encode_header(self, redactor: Redactor = NO_REDACTION) -> bytes:
        """Return the sealed line of the header, without secrets.

        Reads the file that it continues and raises `OSError`.
        """
        header = redactor.redact_header(self.header)
        if self.origin is not None:
            with self.origin.open("rb") as stream:
                for line in islice(read_lines(stream), MAX_HEAD_LINES):
                    if isinstance(line.value, Header):
                        raw = _redact_line(line.raw, self.origin, redactor)
                        return _edit_line(raw, line.value if raw is line.raw else None, header)
        return encode_line(header)


def _redact_line(line: bytes, path: Path, redactor: Redactor) -> bytes:
    """Return a line of the file `path` without secrets."""
    # Here, since most runs make no session of others.
    from yarrow.session.transfer import redact_line

    return redact_line(line, partial(read_blob, path), redactor)


def _copy_line(entry: CopiedRecord, stream: BinaryIO) -> bytes:
    stored = entry.stored
    stream.seek(stored.offset)
    raw = stream.read(stored.length)
    if len(raw) != stored.length:
        raise StorageError(f"{entry.path} shrank while it was copied; try again")
    if entry.value is stored.value or isinstance(entry.value, UnknownRecord) or isinstance(stored.value, UnknownRecord):
        return ensure_sealed(raw)
    return _edit_line(raw, stored.value, entry.value)


def _edit_line(raw: bytes, old: Record | None, new: Record) -> bytes:
    """Return the line of `new`; what it has in common with `old`, and what neither knows, keeps its raw bytes.

    Without `old` that is only what `new` does not know.
    """
    try:
        fields = _decode_fields(raw)
    except msgspec.DecodeError:
        return encode_line(new)  # a damaged line of which only the value could be saved
    before, now = _decode_fields(encode_line(old)) if old is not None else {}, _decode_fields(encode_line(new))
    for name in before.keys() - now.keys():
        fields.pop(name, None)
    fields.update((name, value) for name, value in now.items() if before.get(name) != value)
    return seal(msgspec.json.encode(fields))


def _decode_fields(line: bytes) -> dict[str, Raw]:
    """Return the fields of a line but the checksum, each with its raw bytes."""
    fields = msgspec.json.decode(line, type=dict[str, Raw])
    fields.pop("crc32", None)
    return fields
