"""What stands in a sandbox in the place of a file of secrets: it cannot be read, and to git it looks unchanged."""

import os
from collections.abc import Iterable
from pathlib import Path

from yarrow.policy.sandbox.git_index import is_tracked

DEV_NULL = Path("/dev/null")
"""Covers what git does not track: it passes over devices."""
MAX_MASK_FILES = 64
"""Covers kept for one session; when there are more, all are made anew."""
TRUST_STAT_SETTINGS = {"core.checkStat": "minimal", "core.trustctime": "false"}
"""Settings by which git takes a file for unchanged that has the size and the time it had."""


def make_masks(secrets: Iterable[Path], directory: Path) -> dict[Path, Path]:
    """Return the cover of each file of secrets; those of tracked files are made in `directory`. Raises OSError.

    Such a cover has the size and the time of the file, holds nothing, and nobody may read it: git, which takes it for
    what it knows, leaves it alone, and where it would look, it fails rather than record an empty file.
    """
    return {path: _make_mask(path, directory) if is_tracked(path) else DEV_NULL for path in secrets}


def _make_mask(path: Path, directory: Path) -> Path:
    try:
        status = path.lstat()
    except FileNotFoundError:  # gone since it was looked at
        return DEV_NULL
    is_program = status.st_mode & 0o100
    cover = directory / f"{status.st_size}-{status.st_mtime_ns}-{is_program}"
    if cover.exists():
        return cover
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    others = list(directory.iterdir())
    for other in others if len(others) >= MAX_MASK_FILES else ():
        other.unlink(missing_ok=True)
    beside = directory / f"making-{os.urandom(8).hex()}"
    beside.touch(mode=0o600)
    os.truncate(beside, status.st_size)
    os.utime(beside, ns=(status.st_mtime_ns, status.st_mtime_ns))
    beside.chmod(is_program)
    return beside.replace(cover)
