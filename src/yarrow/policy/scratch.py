"""The private directory of this process, for output too long to show; it is removed when the process ends."""

import itertools
import os
from pathlib import Path

KEPT_FILES = 64
"""The most files kept; a new one removes the oldest."""

_made: list[Path] = []
_numbers = itertools.count()


def scratch_directory() -> Path:
    """Return the directory, mode 0700, made at the first call and made anew when somebody removed it."""
    if not _made or not _made[-1].is_dir():
        import atexit
        import shutil
        import tempfile

        path = Path(os.path.realpath(tempfile.mkdtemp(prefix="yarrow-")))
        atexit.register(shutil.rmtree, path, ignore_errors=True)
        _made.append(path)
    return _made[-1]


def fallback_directory() -> Path:
    """Return a directory to run a command in whose own is gone; what is kept here is not in its way."""
    path = scratch_directory() / "work"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def scratch_file() -> tuple[int, Path]:
    """Return a new file in the directory, mode 0600, as an open descriptor for writing and its path."""
    directory = scratch_directory()
    files = sorted(directory.glob("output-*"))
    for old in files[: max(0, len(files) - KEPT_FILES + 1)]:
        old.unlink(missing_ok=True)
    # The number makes the names rise, and the rest cannot be guessed by another session's model.
    path = directory / f"output-{next(_numbers):09}-{os.urandom(8).hex()}.log"
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), path


def in_scratch(path: Path) -> bool:
    """Whether a real path is a file of the directory; the directory itself is not, so that it cannot be listed."""
    return path.parent in _made
