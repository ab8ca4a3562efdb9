"""Symlink-free opening of paths below a directory, safe against names that become symlinks meanwhile."""

import errno
import os
from pathlib import Path

from yarrow.platform import system

READ_FLAGS = os.O_RDONLY | system.NONBLOCK
"""Flags for reading; a FIFO would otherwise block."""
PATH_CHANGED_ERRORS = frozenset({errno.ELOOP, errno.EXDEV, errno.ENOTDIR, errno.EAGAIN})
"""Errors that mean that a directory in a path is now a symlink or not a directory."""


def open_beneath(root: Path, path: Path, flags: int) -> int:
    """Return a descriptor of a path below `root` that contains no symlink below it.

    Raises OSError: one of `PATH_CHANGED_ERRORS` if the path contains a symlink after all, else the error of `os.open`.
    """
    top = system.open_directory(root)
    try:
        return openat_beneath(top, path.relative_to(root).parts, flags)
    finally:
        os.close(top)


def openat_beneath(directory: int, names: tuple[str, ...], flags: int) -> int:
    """Return a descriptor of a path below an open directory; none of its names may be a symlink.

    Without names, the descriptor is of the directory itself. Raises OSError as `open_beneath` does.
    """
    return system.openat_nofollow(directory, names or (".",), flags)


def open_directory(root: Path, path: Path, *, make: bool = False) -> int:
    """Return a descriptor of a directory below `root`; if `make` is set, it is created along with missing parents.

    Raises OSError as `open_beneath` does.
    """
    if not make:
        return open_beneath(root, path, os.O_RDONLY | system.DIRECTORY)
    return _make_below(system.open_directory(root), path.relative_to(root).parts)


def create_directory(path: Path) -> int:
    """Create a directory with its missing parents and return its descriptor; no part of its path may be a symlink.

    Raises OSError as `open_beneath` does.
    """
    start = next(parent for parent in path.parents if parent.exists())
    at = open_beneath(Path(path.anchor), start, os.O_RDONLY | system.DIRECTORY)
    return _make_below(at, path.relative_to(start).parts)


def _make_below(at: int, names: tuple[str, ...]) -> int:
    """Return a descriptor of a directory below an open one, which is closed; missing directories are created."""
    try:
        for name in names:
            is_made = _make(at, name)
            below = system.openat_nofollow(at, (name,), os.O_RDONLY | system.DIRECTORY)
            if is_made and system.is_root():  # like files that root creates there
                system.copy_owner(below, os.fstat(at))
            os.close(at)
            at = below
    except BaseException:  # also an interrupt: leave no descriptor open
        os.close(at)
        raise
    return at


def _make(directory: int, name: str) -> bool:
    """Create a directory unless it exists; return whether it was created."""
    try:
        system.mkdir_at(directory, name)
    except FileExistsError:
        return False
    return True
