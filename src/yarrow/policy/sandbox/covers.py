"""What stands in a sandbox in the place of a file of secrets: it cannot be read, and to git it looks unchanged."""

import os
import stat
import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from yarrow.policy.sandbox.protected import pointed_to

NOTHING = Path("/dev/null")
"""Covers what git does not track: it passes over devices."""
COVER_FILES = 64
"""Covers kept for one session; when there are more, all are made anew."""
INDEX_BYTES = 67_108_864
"""The most of an index of git that is looked at."""
_HEADER = struct.Struct(">4sI")
_FLAGS = struct.Struct(">H")
_LONGEST_NAME = 0xFFF
TRUSTING = {"core.checkStat": "minimal", "core.trustctime": "false"}
"""Settings by which git takes a file for unchanged that has the size and the time it had."""


def covers(secrets: Iterable[Path], directory: Path) -> dict[Path, Path]:
    """Return the cover of each file of secrets; those of tracked files are made in `directory`. Raises OSError.

    Such a cover has the size and the time of the file, holds nothing, and nobody may read it: git, which takes it for
    what it knows, leaves it alone, and where it would look, it fails rather than record an empty file.
    """
    return {path: _cover(path, directory) if _is_tracked(path) else NOTHING for path in secrets}


def trusting(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with `TRUSTING` among the settings of git that it holds."""
    told = environment.get("GIT_CONFIG_COUNT", "")
    count = int(told) if told.isdecimal() else 0
    added = dict(environment)
    for number, (key, value) in enumerate(TRUSTING.items(), count):
        added[f"GIT_CONFIG_KEY_{number}"], added[f"GIT_CONFIG_VALUE_{number}"] = key, value
    return added | {"GIT_CONFIG_COUNT": str(count + len(TRUSTING))}


def _cover(path: Path, directory: Path) -> Path:
    try:
        status = path.lstat()
    except FileNotFoundError:  # gone since it was looked at
        return NOTHING
    is_program = status.st_mode & 0o100
    cover = directory / f"{status.st_size}-{status.st_mtime_ns}-{is_program}"
    if cover.exists():
        return cover
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    others = list(directory.iterdir())
    for other in others if len(others) >= COVER_FILES else ():
        other.unlink(missing_ok=True)
    beside = directory / f"making-{os.urandom(8).hex()}"
    beside.touch(mode=0o600)
    os.truncate(beside, status.st_size)
    os.utime(beside, ns=(status.st_mtime_ns, status.st_mtime_ns))
    beside.chmod(is_program)
    return beside.replace(cover)


def _is_tracked(path: Path) -> bool:
    """Whether the index of the repository that a file lies in names it; where that cannot be told it does."""
    for above in path.parents:
        git = above / ".git"
        if os.path.lexists(git):
            try:
                directory = git if git.is_dir() else pointed_to(git)
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
        magic, version = _HEADER.unpack_from(data)
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
