"""One line of a session file: how a record is sealed with a checksum, and what is found when lines are read back."""

from collections.abc import Iterator
from typing import BinaryIO
from zlib import crc32

import msgspec
from msgspec import Struct

from yarrow.session import lenient, record
from yarrow.session.lenient import Unknown
from yarrow.session.record import Record

MAX_LINE = 64 * 1024 * 1024
"""Bytes of the longest line. A longer one is skipped when read, and the log refuses to write it."""

_SEAL = b',"crc32":"'
_SEALED = len(_SEAL) + 10
"""Bytes from the comma of the seal to the closing brace, eight hex digits among them."""
_BOM = b"\xef\xbb\xbf"


class Bad(Struct, frozen=True):
    """A line that holds no record that could be trusted; `reason` goes after "the line"."""

    reason: str


class Line(Struct, frozen=True, gc=False):
    """One line that is not blank.

    `number` counts from 1. `raw` is the line without its end and without a byte order mark, and lies in the
    stream at `offset`. `sealed` tells that its checksum was there and right.
    """

    number: int
    offset: int
    raw: bytes
    value: Record | Unknown | Bad
    sealed: bool


def seal(json_object: bytes) -> bytes:
    """Return a JSON object that has a field as a line: with its CRC-32 as the last field, and a newline.

    The checksum is that of all bytes before the comma in front of it.
    """
    body = json_object[:-1]
    return b'%b%b%08x"}\n' % (body, _SEAL, crc32(body))


def encode(value: Record) -> bytes:
    """Return a record as a sealed line."""
    try:
        return seal(record.encode(value))
    except UnicodeEncodeError:
        return seal(lenient.encode(value))


def resealed(raw: bytes) -> bytes:
    """Return the raw line of a record as a sealed line: every byte stays, a checksum is added where there is none."""
    return raw + b"\n" if _has_seal(raw) else seal(raw.rstrip())


def read_lines(stream: BinaryIO) -> Iterator[Line]:
    r"""Yield the lines of a session from where the stream stands, which is taken as offset 0.

    Only `\n` ends a line; a `\r` before it and blank lines are ignored. Memory: one line.
    """
    number = offset = 0
    while block := stream.readline(MAX_LINE + 1):
        number += 1
        start = offset
        offset += len(block)
        if len(block) > MAX_LINE and not block.endswith(b"\n"):
            offset += _skip_line(stream)
            yield Line(number, start, b"", Bad(f"is longer than {MAX_LINE} bytes"), sealed=False)
            continue
        if number == 1 and block.startswith(_BOM):
            block, start = block[len(_BOM) :], start + len(_BOM)
        raw = block.rstrip(b"\r\n")
        if raw and not raw.isspace():
            value, sealed = _interpret(raw, ended=block.endswith(b"\n"))
            yield Line(number, start, raw, value, sealed)


def _has_seal(raw: bytes) -> bool:
    return raw[-_SEALED:-10] == _SEAL


def _skip_line(stream: BinaryIO) -> int:
    skipped = 0
    while block := stream.readline(MAX_LINE):
        skipped += len(block)
        if block.endswith(b"\n"):
            break
    return skipped


def _interpret(raw: bytes, *, ended: bool) -> tuple[Record | Unknown | Bad, bool]:
    sealed = _has_seal(raw)
    if sealed and raw[-10:-2] != b"%08x" % crc32(memoryview(raw)[:-_SEALED]):
        return Bad(_reason(raw, "does not match its checksum", ended=ended)), False
    try:
        return record.decode(raw), sealed
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        if b"\0" in raw:
            raise ValueError("is not whole JSON")
        return lenient.decode(raw), sealed
    except ValueError as error:
        return Bad(_reason(raw, str(error), ended=ended)), False


def _reason(raw: bytes, otherwise: str, *, ended: bool) -> str:
    if b"\0" in raw:
        return "holds NUL bytes, as a crash of the machine leaves them"
    if raw.find(b'{"kind":"', 1) > 0:
        return "holds two records"
    return otherwise if ended else "is cut off"
