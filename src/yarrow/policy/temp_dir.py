"""The private directory of this process, for output too long to show; it is removed when the process ends.

That of a process that was killed is removed by a later one, which finds that nobody holds it.

Its name cannot be guessed and its parent cannot be listed, so commands of another session do not find it: the temporary
directory may be one that their sandbox shows read-only, and there they cannot change the mode of the parent.
"""

import itertools
import os
from contextlib import suppress
from pathlib import Path

from yarrow.platform import system

PREFIX = "yarrow-scratch-"
UNLISTED_DIRECTORY = "own"
"""Directory below that which only its owner enters, and nobody lists."""
FALLBACK_PARENT = "/tmp"  # noqa: S108 (the names below it cannot be guessed)
"""Where the directory is made when `TMPDIR` lies in the working directory."""
MAX_SWEPT = 64
"""The most directories of killed processes that one process removes at its end."""
MAX_OUTPUT_FILES = 64
"""The most files kept; a new one removes the oldest."""

_created: list[Path] = []
_counter = itertools.count()


def temp_directory() -> Path:
    """Return the directory, mode 0700, made at the first call and made anew when somebody removed it."""
    if not _created or not _created[-1].is_dir():
        import atexit

        top = _create_locked()
        atexit.register(_remove, top)
        _created.append(_create_unlisted(top))
    return _created[-1]


def _create_unlisted(top: Path) -> Path:
    """Return a new directory that is found by its name alone; as root, other users pass through those above it."""
    passing = 0o011 if system.is_root() else 0
    path = top / UNLISTED_DIRECTORY / os.urandom(8).hex()
    path.mkdir(mode=0o700, parents=True)
    path.parent.chmod(0o300 | passing)
    top.chmod(0o700 | passing)
    return path


def _create_locked() -> Path:
    """Return a new directory that this process holds."""
    import tempfile

    # One in the working directory would lie in the workspace, which then had no sandbox.
    place = (
        FALLBACK_PARENT
        if _lies_in_working_directory(tempfile.gettempdir()) and os.access(FALLBACK_PARENT, os.W_OK | os.X_OK)
        else None
    )
    while True:
        path = Path(os.path.realpath(tempfile.mkdtemp(prefix=PREFIX, dir=place)))
        try:
            system.try_lock_directory(path)  # as long as the process lives
        except BlockingIOError:  # a process that sweeps was quicker
            continue
        except OSError:  # no locks here: then nobody sweeps here either
            return path
        if path.is_dir():
            return path


def _lies_in_working_directory(path: str) -> bool:
    try:
        return Path(path).resolve().is_relative_to(Path.cwd())
    except OSError:  # it is gone
        return False


def _remove(path: Path) -> None:
    """Remove the directory of this process, and those of killed ones beside it."""
    _remove_tree(path)
    with suppress(OSError), os.scandir(path.parent) as entries:  # which may be thousands
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
        from yarrow.policy.directory_trees import remove_tree

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
    """Return a directory to run a command in whose own is gone; what is kept here is not in its way."""
    path = temp_directory() / "work"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def create_output_file() -> tuple[int, Path]:
    """Return a new file in the directory, mode 0600, as an open descriptor for writing and its path."""
    directory = temp_directory()
    files = sorted(directory.glob("output-*"))
    for old in files[: max(0, len(files) - MAX_OUTPUT_FILES + 1)]:
        old.unlink(missing_ok=True)
    # The number makes the names rise, and the rest cannot be guessed by another session's model.
    path = directory / f"output-{next(_counter):09}-{os.urandom(8).hex()}.log"
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.BASE_FLAGS, 0o600), path


def is_output_file(path: Path) -> bool:
    """Whether a real path is a file of the directory; the directory itself is not, so that it cannot be listed."""
    return path.parent in _created
