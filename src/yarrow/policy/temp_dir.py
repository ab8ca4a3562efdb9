"""Private temporary directory of this process, removed when it ends, for output too long to show.

The directory of a killed process is removed by a later one, which finds it unlocked.

Its name cannot be guessed and its parent cannot be listed, so that commands of another session do not find it: their
sandbox may show the system's temporary directory read-only, where they cannot change the parent's mode.
"""

import itertools
import os
from contextlib import suppress
from pathlib import Path

from yarrow.platform import system
from yarrow.platform.real_path import real_path

PREFIX = "yarrow-scratch-"
UNLISTED_DIRECTORY = "own"
"""Subdirectory that only its owner can enter and that cannot be listed."""
FALLBACK_PARENT = "/tmp"  # noqa: S108 (the names below it cannot be guessed)
"""Parent of the directory if `TMPDIR` lies in the working directory."""
MAX_SWEPT = 64
"""Maximum directories of killed processes that one process removes when it ends."""
MAX_OUTPUT_FILES = 64
"""Maximum output files kept; a new one replaces the oldest."""

_created: list[Path] = []
_counter = itertools.count()


def temp_directory() -> Path:
    """Return the directory, mode 0700; it is created on the first call and again if it was removed."""
    if not _created or not _created[-1].is_dir():
        import atexit

        top = _create_locked()
        atexit.register(_remove, top)
        _created.append(_create_unlisted(top))
    return _created[-1]


def _create_unlisted(top: Path) -> Path:
    """Create a directory that is only found by name; if we are root, other users may pass through its parents."""
    passing = 0o011 if system.is_root() else 0
    path = top / UNLISTED_DIRECTORY / os.urandom(8).hex()
    path.mkdir(mode=0o700, parents=True)
    path.parent.chmod(0o300 | passing)
    top.chmod(0o700 | passing)
    return path


def _create_locked() -> Path:
    """Create a directory locked by this process."""
    import tempfile

    # A directory in the working directory would lie in the workspace, which then could have no sandbox.
    place = (
        FALLBACK_PARENT
        if _lies_in_working_directory(tempfile.gettempdir()) and os.access(FALLBACK_PARENT, os.W_OK | os.X_OK)
        else None
    )
    while True:
        path = Path(real_path(tempfile.mkdtemp(prefix=PREFIX, dir=place)))
        try:
            system.try_lock_directory(path)  # held for the life of the process
        except BlockingIOError:  # another process swept it first
            continue
        except OSError:  # locks are not supported, so no process sweeps here either
            return path
        if path.is_dir():
            return path


def _lies_in_working_directory(path: str) -> bool:
    try:
        return Path(path).resolve().is_relative_to(Path.cwd())
    except OSError:  # the directory is gone
        return False


def _remove(path: Path) -> None:
    """Remove the directory of this process, and adjacent ones of killed processes."""
    _remove_tree(path)
    with suppress(OSError), os.scandir(path.parent) as entries:  # there may be thousands
        beside = (each.path for each in entries if each.name.startswith(PREFIX))
        for each in itertools.islice(beside, MAX_SWEPT):
            _sweep(Path(each))


def _remove_tree(path: Path) -> None:
    import shutil

    with suppress(OSError):
        (path / UNLISTED_DIRECTORY).chmod(0o700)
    try:
        shutil.rmtree(path, ignore_errors=True)
    except RecursionError:  # a command can nest directories deeper than the stack
        from yarrow.policy.deep_tree_operations import remove_tree

        remove_tree(path)


def _sweep(path: Path) -> None:
    with suppress(OSError):
        descriptor = system.try_lock_directory(path)
        try:
            if system.is_owned(os.fstat(descriptor)):
                _remove_tree(path)
        finally:
            os.close(descriptor)


def fallback_directory() -> Path:
    """Return a directory in which a command runs if its own is gone; it is separate from the other files kept here."""
    path = temp_directory() / "work"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def create_output_file() -> tuple[int, Path]:
    """Create a file in the directory, mode 0600; return a descriptor open for writing and its path."""
    directory = temp_directory()
    files = sorted(directory.glob("output-*"))
    for old in files[: max(0, len(files) - MAX_OUTPUT_FILES + 1)]:
        old.unlink(missing_ok=True)
    # The counter keeps names in order; the random part cannot be guessed by another session's model.
    path = directory / f"output-{next(_counter):09}-{os.urandom(8).hex()}.log"
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.BASE_FLAGS, 0o600), path


def is_output_file(path: Path) -> bool:
    """Return whether a real path is a file in the directory.

    The directory itself does not count, so that it cannot be listed.
    """
    return path.parent in _created
