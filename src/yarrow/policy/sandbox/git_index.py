"""Index of a git repository: which files it tracks, and whether a file matches its record."""

import hashlib
import os
import stat
import struct
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from yarrow.platform import system
from yarrow.policy.sandbox.git_files import git_directory_of

MAX_INDEX_BYTES = 67_108_864
"""Maximum bytes read of an index."""
MAX_COMPRESSED_ENTRIES = 20_000
"""Maximum entries read of a version 4 index, which must be parsed sequentially; a name beyond them is unknown."""
MAX_RECORDED_BYTES = 1_048_576
"""Maximum bytes of a file that is compared with the index; a larger one counts as changed."""
SETTLED_NANOSECONDS = 2_000_000_000
"""Age of the last change, in nanoseconds, from which on another change shows in the change time."""
_LONGEST_NAME, _EXTENDED = 0xFFF, 0x4000
_HEADER, _FLAGS = struct.Struct(">4sII"), struct.Struct(">H")
_STATUS_BYTES, _SHA1_BYTES, _LONGEST_ID = 40, 20, 32
_UNKNOWN = (b"",)
"""Result for an index that cannot be read."""
StatIdentity = tuple[int, int, int, int]
"""Device, inode, change time and size."""
MAX_DIFFERING = 200_000
"""Maximum files remembered to differ from their record; from then on no file counts as recorded."""
_differing = set[tuple[str, int, int, int, int]]()
"""Path, device, inode, modification time and size of the files that differed from their record."""


def is_tracked(path: Path) -> bool:
    """Return whether the index of a file's repository contains it; true if the index cannot be read."""
    return bool(_entries_of(path))


def is_recorded(path: Path) -> bool:
    """Return whether a file's content matches the index, so that git shows it to anyone who asks.

    A file transformed by a filter, such as one that git encrypts, differs from its record.

    A file that this process saw to differ stays so until it changes itself: commands can write the index, and a record
    that matches afterwards would confirm what they guessed of its content.
    """
    try:
        status = path.lstat()
    except OSError:
        return False
    seen = (str(path), status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
    if seen in _differing:
        return False
    is_same = _matches_record(path, status)
    if not is_same:
        _differing.add(seen)
    return is_same and len(_differing) < MAX_DIFFERING


def _matches_record(path: Path, status: os.stat_result) -> bool:
    entries = _entries_of(path)
    if len(entries) != 1 or entries == _UNKNOWN:  # several: git has only one, but a command can write many guesses
        return False
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_RECORDED_BYTES:
        return False
    is_settled = time.time_ns() - status.st_ctime_ns > SETTLED_NANOSECONDS
    ids = (_blob_ids if is_settled else _blob_ids.__wrapped__)(path, _stat_identity(status))
    return entries[0].endswith(ids)


def _entries_of(path: Path) -> tuple[bytes, ...]:
    """Return the bytes that end with the object id, for each entry of a file in its repository's index."""
    for above in path.parents:
        git = above / ".git"
        if os.path.lexists(git):
            try:
                index = git_directory_of(git) / "index"
                status = index.stat()
            except (OSError, ValueError):
                return ()
            if not stat.S_ISREG(status.st_mode):
                return ()
            return _read_entries(str(index), os.fsencode(path.relative_to(above)), _stat_identity(status))
    return ()


def _stat_identity(status: os.stat_result) -> StatIdentity:
    return status.st_dev, status.st_ino, status.st_ctime_ns, status.st_size


@lru_cache(maxsize=256)
def _blob_ids(path: Path, _now: StatIdentity) -> tuple[bytes, ...]:
    """Return the ids that git assigns to a file's content; empty if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | system.NOFOLLOW | system.BASE_FLAGS | system.NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(MAX_RECORDED_BYTES + 1)
    except OSError:
        return ()
    blob = b"blob %d\0" % len(content) + content
    return hashlib.sha1(blob, usedforsecurity=False).digest(), hashlib.sha256(blob).digest()


@lru_cache(maxsize=256)
def _read_entries(index: str, name: bytes, _now: StatIdentity) -> tuple[bytes, ...]:
    """Return the index entries of a name, cached until the index changes."""
    try:
        with open(index, "rb") as file:
            data = file.read(MAX_INDEX_BYTES)
        magic, version, count = _HEADER.unpack_from(data)
    except (OSError, struct.error):
        return ()
    if magic != b"DIRC":
        return ()
    if version <= 3:
        return tuple(_plain_entries(data, name, is_extensible=version > 2))
    try:
        return tuple(_compressed_entries(data, name, count))
    except (IndexError, ValueError, struct.error):
        return _UNKNOWN


def _plain_entries(data: bytes, name: bytes, *, is_extensible: bool) -> Iterator[bytes]:
    """Yield the bytes that end with the id before a name.

    Between them are the name's length and, in version 3, optional further flags.
    """
    at = data.find(name + b"\0")
    while at >= _HEADER.size:
        for end in (at - _FLAGS.size, at - 2 * _FLAGS.size) if is_extensible else (at - _FLAGS.size,):
            flags = _FLAGS.unpack_from(data, end)[0]
            if flags & _LONGEST_NAME == len(name) and bool(flags & _EXTENDED) == (end < at - _FLAGS.size):
                yield data[max(end - _LONGEST_ID, 0) : end]
        at = data.find(name + b"\0", at + 1)


def _compressed_entries(data: bytes, name: bytes, count: int) -> Iterator[bytes]:
    """Yield the ids of a name in version 4, where each name is stored as its difference from the previous one.

    Names are sorted, so nothing after the name is read.

    Raises IndexError, ValueError and struct.error for any other format, such as one with SHA-256, and for a name that
    is too far behind.
    """
    at, current = _HEADER.size, b""
    for number in range(count):
        if number >= MAX_COMPRESSED_ENTRIES:
            raise ValueError(number)
        start, flags_at = at + _STATUS_BYTES, at + _STATUS_BYTES + _SHA1_BYTES
        flags = _FLAGS.unpack_from(data, flags_at)[0]
        at = flags_at + _FLAGS.size * (2 if flags & _EXTENDED else 1)
        left_out = data[at] & 0x7F
        while data[at] & 0x80:
            at += 1
            left_out = (left_out + 1 << 7) + (data[at] & 0x7F)
        end = data.index(b"\0", at + 1)
        current = current[: len(current) - left_out] + data[at + 1 : end]
        if current == name:
            yield data[start:flags_at]
        elif current > name:
            return
        at = end + 1
