"""Line format of session files: record and checksum, and a lenient decoder for damaged lines."""

from collections.abc import Iterator
from typing import Any, BinaryIO, cast
from zlib import crc32

import msgspec
from msgspec import Struct

from yarrow.message import Message
from yarrow.session import record
from yarrow.session.record import (
    Change,
    Compaction,
    Header,
    PermissionAnswered,
    PermissionAsked,
    Queued,
    Record,
    Undelivered,
)

_RECORD_TYPES: dict[str, type[Record]] = {
    "header": Header,
    "message": Message,
    "change": Change,
    "compaction": Compaction,
    "queued": Queued,
    "undelivered": Undelivered,
    "permissionAsked": PermissionAsked,
    "permissionAnswered": PermissionAnswered,
}


class UnknownRecord(Struct, frozen=True):
    """A complete line that this version cannot interpret; it is ignored and preserved."""

    kind: str


def salvage_record(line: bytes) -> Record | UnknownRecord:
    """Return the record on a line, tolerating harmless damage.

    Lone surrogates and invalid UTF-8 become U+FFFD, raw control characters in strings are accepted, and an optional
    field with a value from a later version is treated as absent. A line with a kind, role, block type or other required
    field from a later version is an `UnknownRecord`. Raises `ValueError` if it is not a JSON object with a kind.
    """
    try:
        return _parse_record(line)
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def encode_replacing_surrogates(record: Record) -> bytes:
    """Return a record as one JSON object, with lone surrogates replaced by U+FFFD."""
    import json  # a safety net: text is sanitized when it enters the program

    value = msgspec.to_builtins(record)
    return replace_surrogates(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


def replace_surrogates(text: str) -> str:
    """Return the text with lone surrogates replaced by U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _parse_record(line: bytes) -> Record | UnknownRecord:
    import json  # a healthy session never needs it

    try:
        value: object = json.loads(line.decode(errors="replace"), strict=False)
    except ValueError:
        raise ValueError("is not complete JSON") from None
    if not isinstance(value, dict):
        raise ValueError("is not a JSON object")  # noqa: TRY004 (the caller reports one kind of bad line)
    value = cast("dict[str, Any]", value)
    kind = value.get("kind")
    if not isinstance(kind, str):
        raise ValueError("has no kind")  # noqa: TRY004
    known = _RECORD_TYPES.get(kind)
    if known is None:
        return UnknownRecord(replace_surrogates(kind))
    return _convert(json.loads(replace_surrogates(json.dumps(value, ensure_ascii=False))), known) or UnknownRecord(kind)


def _convert(value: dict[str, Any], known: type[Record]) -> Record | None:
    fields = {field.encode_name: field for field in msgspec.structs.fields(known)}
    kept = {
        name: item
        for name, item in value.items()
        if name not in fields or fields[name].required or _fits(item, fields[name].type)
    }
    try:
        return msgspec.convert(kept, known)
    except msgspec.ValidationError:
        return None


def _fits(value: object, type_: object) -> bool:
    try:
        msgspec.convert(value, type_)
    except msgspec.ValidationError:
        return False
    return True


MAX_LINE_BYTES = 64 * 1024 * 1024
"""Maximum bytes of a line; the reader skips longer ones, and the log refuses to write them."""

_SEAL_START = b',"crc32":"'
_SEAL_LENGTH = len(_SEAL_START) + 10
"""Bytes from the comma of the seal to the closing brace, including eight hex digits."""
_BOM = b"\xef\xbb\xbf"


class BadLine(Struct, frozen=True):
    """A line, or a part of one, without a trustworthy record.

    `reason` continues a sentence that starts with "the line".
    """

    reason: str
    partly: bool = False
    """True if other parts of the line are whole records."""


class SessionLine(Struct, frozen=True, gc=False):
    """One line that is not blank, or one record of a damaged line.

    `number` counts from 1. `raw` is the line without line ending and byte order mark, at `offset` in the stream.
    `sealed` is True if it has a correct checksum.
    """

    number: int
    offset: int
    raw: bytes
    value: Record | UnknownRecord | BadLine
    sealed: bool


def seal(json_object: bytes) -> bytes:
    """Return a non-empty JSON object as a line: with its CRC-32 as the last field, and a newline.

    The checksum covers all bytes before the preceding comma.
    """
    body = json_object[:-1]
    return b'%b%b%08x"}\n' % (body, _SEAL_START, crc32(body))


def encode_line(value: Record) -> bytes:
    """Return a record as a sealed line."""
    try:
        return seal(record.encode(value))
    except UnicodeEncodeError:
        return seal(encode_replacing_surrogates(value))


def ensure_sealed(raw: bytes) -> bytes:
    """Return the raw line of a record as a sealed line: bytes are unchanged, a missing checksum is added."""
    return raw + b"\n" if _has_seal(raw) else seal(raw.rstrip())


def read_lines(stream: BinaryIO) -> Iterator[SessionLine]:
    r"""Yield the lines of a session from the stream's current position, which counts as offset 0.

    Only `\n` ends a line; a preceding `\r` and blank lines are ignored. Holds one line in memory.

    A damaged line yields its whole records, then the damage, if it is more than a missing line ending.
    """
    number = offset = 0
    while block := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        start = offset
        offset += len(block)
        if len(block) > MAX_LINE_BYTES and not block.endswith(b"\n"):
            offset += _skip_line(stream)
            yield SessionLine(number, start, b"", BadLine(f"is longer than {MAX_LINE_BYTES} bytes"), sealed=False)
            continue
        if number == 1 and block.startswith(_BOM):
            block, start = block[len(_BOM) :], start + len(_BOM)
        raw = block.rstrip(b"\r\n")
        if raw and not raw.isspace():
            value, sealed = _decode_line(raw, ended=block.endswith(b"\n"))
            line = SessionLine(number, start, raw, value, sealed)
            yield from _recover(line, value) if isinstance(value, BadLine) else (line,)


def _recover(line: SessionLine, damage: BadLine) -> Iterator[SessionLine]:
    # Imported here because a healthy session never needs it.
    from yarrow.session.damaged_line import recover_records

    found = recover_records(line.raw)
    for one in found.records:
        piece = line.raw[one.start : one.end]
        value, sealed = _decode_line(piece, ended=True)
        yield SessionLine(line.number, line.offset + one.start, piece, value, sealed)
    if not found.records:
        yield line
    elif found.rest:
        reason = damage.reason if b"\0" in found.rest else "contains a damaged record"
        yield SessionLine(line.number, line.offset, line.raw, BadLine(reason, partly=True), sealed=False)


def _has_seal(raw: bytes) -> bool:
    return raw[-_SEAL_LENGTH:-10] == _SEAL_START


def _skip_line(stream: BinaryIO) -> int:
    skipped = 0
    while block := stream.readline(MAX_LINE_BYTES):
        skipped += len(block)
        if block.endswith(b"\n"):
            break
    return skipped


def _decode_line(raw: bytes, *, ended: bool) -> tuple[Record | UnknownRecord | BadLine, bool]:
    sealed = _has_seal(raw)
    if sealed and raw[-10:-2] != b"%08x" % crc32(memoryview(raw)[:-_SEAL_LENGTH]):
        return BadLine(_describe_damage(raw, "does not match its checksum", ended=ended)), False
    try:
        return record.decode(raw), sealed
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        if b"\0" in raw:
            raise ValueError("is not complete JSON")
        return salvage_record(raw), sealed
    except ValueError as error:
        return BadLine(_describe_damage(raw, str(error), ended=ended)), False


def _describe_damage(raw: bytes, otherwise: str, *, ended: bool) -> str:
    if b"\0" in raw:
        return "contains NUL bytes, probably after a system crash"
    if raw.find(b'{"kind":"', 1) > 0:
        return "contains several damaged records"
    return otherwise if ended else "is truncated"
