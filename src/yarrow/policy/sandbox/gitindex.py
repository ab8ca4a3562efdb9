"""Reads from the index of a git repository what it tracks, and which directories are repositories of their own."""

import os
import stat
import struct
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from yarrow.policy.sandbox.protected import directory_of

INDEX_BYTES = 67_108_864
"""The most of an index of git that is looked at."""
MOST_INDEXES = 16
"""An index and the ones that it shares entries with."""
_GITLINK = b"\0\0\xe0\0"
"""The mode of an entry that is a repository of its own, as an index has it."""
_MODE_AT, _STATUS_BYTES, _EXTENDED = 24, 40, 0x4000
_LONGEST_NAME = 0xFFF
_HEADER, _FLAGS = struct.Struct(">4sII"), struct.Struct(">H")
_HASHES = (20, 32)
"""Bytes of a name of an object: of SHA-1, and of SHA-256."""


def is_tracked(path: Path) -> bool:
    """Return whether the index of the repository that a file lies in names it; where that cannot be told it does."""
    for above in path.parents:
        git = above / ".git"
        if os.path.lexists(git):
            try:
                directory = directory_of(git)
                status = (directory / "index").stat()
            except (OSError, ValueError):
                return False
            if not stat.S_ISREG(status.st_mode):
                return False
            names = os.fsencode(path.relative_to(above))
            return _names(str(directory / "index"), names, (status.st_ino, status.st_mtime_ns, status.st_size))
    return False


def gitlinks(git: Path) -> tuple[str, ...]:
    """Return the paths, relative to what a `.git` belongs to, of the repositories that its index names."""
    try:
        directory = directory_of(git)
        shared = sorted(name for name in os.listdir(directory) if name.startswith("sharedindex."))  # noqa: PTH208
        found: list[str] = []
        for name in ("index", *shared[:MOST_INDEXES]):
            path = directory / name
            if path.is_file():
                status = path.stat()
                found += _read(str(path), (status.st_ino, status.st_mtime_ns, status.st_size))
    except (OSError, ValueError):
        return ()
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=256)
def _names(index: str, name: bytes, _state: tuple[int, int, int]) -> bool:
    """Whether an index holds a name; an answer is remembered until the index changes."""
    try:
        with open(index, "rb") as file:
            data = file.read(INDEX_BYTES)
        magic, version, _count = _HEADER.unpack_from(data)
    except (OSError, struct.error):
        return False
    if magic != b"DIRC":
        return False
    if version > 3:  # where names are written as what differs from the one before
        return True
    at = data.find(name + b"\0")
    while at >= _HEADER.size:
        # Before a name stands how long it is; in version 3 other things can.
        if version > 2 or _FLAGS.unpack_from(data, at - _FLAGS.size)[0] & _LONGEST_NAME == len(name):
            return True
        at = data.find(name + b"\0", at + 1)
    return False


@lru_cache(maxsize=256)
def _read(index: str, _state: tuple[int, int, int]) -> tuple[str, ...]:
    """Return what one index names; an answer is remembered until the index changes. Raises OSError."""
    with open(index, "rb") as file:
        data = file.read(INDEX_BYTES)
    if _GITLINK not in data:
        return ()
    # Which hash a repository uses its configuration says; read by the other one an index makes no sense.
    return tuple({os.fsdecode(name) for size in _HASHES for name in _entries(data, size)})


def _entries(data: bytes, hash_size: int) -> Iterator[bytes]:
    """Yield the names of the entries that are repositories, up to where the data makes no sense."""
    try:
        magic, version, count = _HEADER.unpack_from(data)
        if magic != b"DIRC":
            return
        at, name = _HEADER.size, b""
        for _ in range(count):
            start = at
            (flags,) = _FLAGS.unpack_from(data, at + _STATUS_BYTES + hash_size)
            at += _STATUS_BYTES + hash_size + (4 if flags & _EXTENDED else 2)
            if version > 3:
                cut, at = _number(data, at)
                name = name[: len(name) - cut]
            else:
                name = b""
            end = data.index(b"\0", at)
            name += data[at:end]
            at = end + 1 if version > 3 else start + ((end - start) // 8 + 1) * 8
            if data[start + _MODE_AT : start + _MODE_AT + 4] == _GITLINK and b"\0" not in name:
                yield name
    except (struct.error, ValueError, IndexError):
        return


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, and where it ends. Raises IndexError."""
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 0x7F)
    return value, at + 1
