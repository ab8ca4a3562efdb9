"""Opens what lies below a directory by a path without links, also when one of its names becomes a link meanwhile."""

import errno
import os
from pathlib import Path

from yarrow.platform import system

PATH_CHANGED_ERRORS = frozenset({errno.ELOOP, errno.EXDEV, errno.ENOTDIR, errno.EAGAIN})
"""How an error says that a link, or something else than a directory, stands where a directory was."""


def open_beneath(root: Path, path: Path, flags: int) -> int:
    """Return a descriptor of a path that lies below `root` and has no link in it from there on.

    Raises OSError: with a number of `PATH_CHANGED_ERRORS` when there is a link after all, else as `os.open`.
    """
    top = system.open_directory(root)
    try:
        return openat_beneath(top, path.relative_to(root).parts, flags)
    finally:
        os.close(top)


def openat_beneath(directory: int, names: tuple[str, ...], flags: int) -> int:
    """Return a descriptor of what an open directory holds by these names, none of which is a link; none is itself.

    Raises OSError as `open_beneath`.
    """
    return system.openat_nofollow(directory, names or (".",), flags)


def open_directory(root: Path, path: Path, *, make: bool = False) -> int:
    """Return a descriptor of a directory that lies below `root`, made with those above it if `make` says so.

    Raises OSError as `open_beneath`.
    """
    if not make:
        return open_beneath(root, path, os.O_RDONLY | system.DIRECTORY)
    at = system.open_directory(root)
    try:
        for name in path.relative_to(root).parts:
            is_made = _make(at, name)
            below = system.openat_nofollow(at, (name,), os.O_RDONLY | system.DIRECTORY)
            if is_made and system.is_root():  # as files that root makes there
                system.copy_owner(below, os.fstat(at))
            os.close(at)
            at = below
    except BaseException:
        os.close(at)
        raise
    return at


def _make(directory: int, name: str) -> bool:
    """Make a directory unless one is there; return whether it was made."""
    try:
        system.mkdir_at(directory, name)
    except FileExistsError:
        return False
    return True
