"""Reads from the index of a git repository which files it tracks."""

import os
import stat
import struct
from functools import lru_cache
from pathlib import Path

from yarrow.policy.sandbox.protected import directory_of

INDEX_BYTES = 67_108_864
"""The most of an index of git that is looked at."""
_LONGEST_NAME = 0xFFF
_HEADER, _FLAGS = struct.Struct(">4sII"), struct.Struct(">H")


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
