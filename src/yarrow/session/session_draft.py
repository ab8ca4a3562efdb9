"""Draft of a session derived from others: its header and records, and their encoding as lines."""

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
from yarrow.redaction.redactor import NO_REDACTION, Redactor
from yarrow.session.blobs import read_blob
from yarrow.session.line_codec import UnknownRecord, encode_line, ensure_sealed, read_lines, seal
from yarrow.session.record import Header, Record, redact_header
from yarrow.session.session_file_reader import MAX_HEAD_LINES, StoredRecord


class CopiedRecord(Struct, frozen=True, gc=False):
    """A record copied from the session file `path`.

    If `value` is the stored value, the line is copied byte for byte; otherwise only the changed fields are replaced.
    """

    path: Path
    stored: StoredRecord
    value: Record | UnknownRecord


class SessionDraft(Struct, frozen=True):
    """A session to be created."""

    header: Header
    entries: tuple[CopiedRecord | Message, ...]
    """Its records in order: copied records and new messages."""
    origin: Path | None = None
    """The file whose header is continued, including its unknown fields."""

    def records(self) -> Iterator[Record | UnknownRecord]:
        """Yield the records, to be folded into a state."""
        return (entry if isinstance(entry, Message) else entry.value for entry in self.entries)

    def encode_lines(self, redactor: Redactor = NO_REDACTION) -> Iterator[tuple[bytes, Path | None]]:
        """Yield the sealed line of each record, redacted, with its source file if any; holds one line in memory.

        A line may reference blobs of its source file. Raises `OSError`, and `StorageError` if a file shrank.
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
        """Return the sealed line of the header, redacted.

        Reads the header of the continued file and raises `OSError`.
        """
        header = redact_header(self.header, redactor)
        if self.origin is not None:
            with self.origin.open("rb") as stream:
                for line in islice(read_lines(stream), MAX_HEAD_LINES):
                    if isinstance(line.value, Header):
                        raw = _redact_line(line.raw, self.origin, redactor)
                        return _edit_line(raw, line.value if raw is line.raw else None, header)
        return encode_line(header)


def _redact_line(line: bytes, path: Path, redactor: Redactor) -> bytes:
    """Return a line of the file `path`, redacted."""
    # Imported here because most runs derive no sessions.
    from yarrow.session.export_import import redact_line

    return redact_line(line, partial(read_blob, path), redactor)


def _copy_line(entry: CopiedRecord, stream: BinaryIO) -> bytes:
    stored = entry.stored
    stream.seek(stored.offset)
    raw = stream.read(stored.length)
    if len(raw) != stored.length:
        raise StorageError(f"{entry.path} was truncated during the copy; try again")
    if entry.value is stored.value or isinstance(entry.value, UnknownRecord) or isinstance(stored.value, UnknownRecord):
        return ensure_sealed(raw)
    return _edit_line(raw, stored.value, entry.value)


def _edit_line(raw: bytes, old: Record | None, new: Record) -> bytes:
    """Return the line of `new`; fields equal in `old`, and fields unknown to both, keep their raw bytes.

    Without `old`, only unknown fields do.
    """
    try:
        fields = _decode_fields(raw)
    except msgspec.DecodeError:
        return encode_line(new)  # a damaged line of which only the value was salvaged
    before, now = _decode_fields(encode_line(old)) if old is not None else {}, _decode_fields(encode_line(new))
    for name in before.keys() - now.keys():
        fields.pop(name, None)
    fields.update((name, value) for name, value in now.items() if before.get(name) != value)
    return seal(msgspec.json.encode(fields))


def _decode_fields(line: bytes) -> dict[str, Raw]:
    """Return the fields of a line except the checksum, each with its raw bytes."""
    fields = msgspec.json.decode(line, type=dict[str, Raw])
    fields.pop("crc32", None)
    return fields
