"""One line of a session file: how a record is sealed with a checksum, and what is found when lines are read back."""

from collections.abc import Iterator
from typing import BinaryIO
from zlib import crc32

import msgspec
from msgspec import Struct

from yarrow.session import lenient_decoder, record
from yarrow.session.lenient_decoder import UnknownRecord
from yarrow.session.record import Record

MAX_LINE_BYTES = 64 * 1024 * 1024
"""Bytes of the longest line. A longer one is skipped when read, and the log refuses to write it."""

_SEAL_START = b',"crc32":"'
_SEAL_LENGTH = len(_SEAL_START) + 10
"""Bytes from the comma of the seal to the closing brace, eight hex digits among them."""
_BOM = b"\xef\xbb\xbf"


class BadLine(Struct, frozen=True):
    """A line that holds no record that could be trusted; `reason` goes after "the line"."""

    reason: str


class SessionLine(Struct, frozen=True, gc=False):
    """One line that is not blank.

    `number` counts from 1. `raw` is the line without its end and without a byte order mark, and lies in the
    stream at `offset`. `sealed` tells that its checksum was there and right.
    """

    number: int
    offset: int
    raw: bytes
    value: Record | UnknownRecord | BadLine
    sealed: bool


def seal(json_object: bytes) -> bytes:
    """Return a JSON object that has a field as a line: with its CRC-32 as the last field, and a newline.

    The checksum is that of all bytes before the comma in front of it.
    """
    body = json_object[:-1]
    return b'%b%b%08x"}\n' % (body, _SEAL_START, crc32(body))


def encode_line(value: Record) -> bytes:
    """Return a record as a sealed line."""
    try:
        return seal(record.encode(value))
    except UnicodeEncodeError:
        return seal(lenient_decoder.encode_replacing_surrogates(value))


def ensure_sealed(raw: bytes) -> bytes:
    """Return the raw line of a record as a sealed line: every byte stays, a checksum is added where there is none."""
    return raw + b"\n" if _has_seal(raw) else seal(raw.rstrip())


def read_lines(stream: BinaryIO) -> Iterator[SessionLine]:
    r"""Yield the lines of a session from where the stream stands, which is taken as offset 0.

    Only `\n` ends a line; a `\r` before it and blank lines are ignored. Memory: one line.
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
            yield SessionLine(number, start, raw, value, sealed)


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
            raise ValueError("is not whole JSON")
        return lenient_decoder.salvage_record(raw), sealed
    except ValueError as error:
        return BadLine(_describe_damage(raw, str(error), ended=ended)), False


def _describe_damage(raw: bytes, otherwise: str, *, ended: bool) -> str:
    if b"\0" in raw:
        return "holds NUL bytes, as a crash of the machine leaves them"
    if raw.find(b'{"kind":"', 1) > 0:
        return "holds two records"
    return otherwise if ended else "is cut off"
