"""Recovery of whole records from a damaged line: beside a torn record, another one, or NUL bytes."""

import re
from collections.abc import Iterator
from zlib import crc32

import msgspec
from msgspec import Struct

from yarrow.session import record

RECORD_START = b'{"kind":"'
"""First bytes of a record. No JSON string contains them, because its quotes are escaped."""
_SEAL = re.compile(rb',"crc32":"([0-9a-f]{8})"\}')
_BLANK = b" \t\r\n"
MAX_TRIED_STARTS = 8
"""Maximum starts before one checksum that may be its record's; objects inside a record may look like starts."""
MAX_UNSEALED = 64
"""Maximum starts without a checksum in one part of a line; a part with more contains no records."""


class RecoveredRecord(Struct, frozen=True):
    """A whole record, at the bytes from `start` to `end` of its line; `sealed` is True if its checksum is correct."""

    start: int
    end: int
    sealed: bool


class LineRecovery(Struct, frozen=True):
    """The whole records of a damaged line, in order, and its other bytes."""

    records: tuple[RecoveredRecord, ...]
    rest: bytes


def recover_records(raw: bytes) -> LineRecovery:
    """Return the whole records of a line; runs in time linear in its length."""
    sealed = tuple(_find_sealed(raw))
    found: list[RecoveredRecord] = []
    rest: list[bytes] = []
    begin = 0
    for one in (*sealed, None):
        end = len(raw) if one is None else one.start
        unsealed = tuple(_find_unsealed(raw, begin, end))
        found += unsealed
        rest += _find_gaps(raw, unsealed, begin=begin, end=end)
        if one is not None:
            found.append(one)
            begin = one.end
    return LineRecovery(tuple(found), b"".join(rest))


def _find_sealed(raw: bytes) -> Iterator[RecoveredRecord]:
    begin = 0
    for seal in _SEAL.finditer(raw):
        start = seal.start()
        for _ in range(MAX_TRIED_STARTS):
            start = raw.rfind(RECORD_START, begin, start)
            if start < 0:
                break
            if seal[1] == b"%08x" % crc32(memoryview(raw)[start : seal.start()]):
                yield RecoveredRecord(start, seal.end(), sealed=True)
                break
        begin = seal.end()  # a record has one checksum, its end


def _find_unsealed(raw: bytes, begin: int, end: int) -> Iterator[RecoveredRecord]:
    """Yield the records without a checksum in a part of a line: each is all that is between two starts."""
    starts = [found.start() for found in re.finditer(RECORD_START, raw[begin:end])]
    if len(starts) > MAX_UNSEALED:
        return
    for start, after in zip(starts, [*starts, end - begin][1:], strict=True):
        piece = raw[begin + start : begin + after].rstrip(_BLANK + b"\0")
        # With a checksum, this record would have been found if it were whole.
        if not _SEAL.search(piece) and _is_record(piece):
            yield RecoveredRecord(begin + start, begin + start + len(piece), sealed=False)


def _is_record(piece: bytes) -> bool:
    try:
        record.decode(piece)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _find_gaps(raw: bytes, found: tuple[RecoveredRecord, ...], *, begin: int, end: int) -> Iterator[bytes]:
    """Yield what is between records, without blanks."""
    for one in found:
        yield raw[begin : one.start].strip(_BLANK)
        begin = one.end
    yield raw[begin:end].strip(_BLANK)
