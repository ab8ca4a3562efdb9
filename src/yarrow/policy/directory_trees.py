"""Removal and measurement of directory trees, which may be deeper than any path or call stack."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from yarrow.platform import system

MAX_MEASURED_ENTRIES = 1_000_000
"""Entries of a tree whose bytes are added up; the rest counts as nothing."""
_DIRECTORY = os.O_RDONLY | system.DIRECTORY | system.NOFOLLOW | system.BASE_FLAGS


def remove_tree(path: Path) -> None:
    """Remove a directory with all that is in it, also what its owner closed to itself, as package caches do.

    Each directory is moved to the top before it is emptied: that needs two descriptors and no recursion.
    """
    with suppress(OSError):
        if not stat.S_ISDIR(path.lstat().st_mode):
            path.unlink()
            return
        above = os.open(path.parent, _DIRECTORY & ~system.NOFOLLOW)
        try:
            _remove(above, path.name)
        finally:
            os.close(above)


def measure_tree(directory: int, name: str) -> int:
    """Return the bytes of all files at a name of an open directory, as far as paths of the system reach."""
    try:
        status = system.stat_at(directory, name)
    except OSError:
        return 0
    if not stat.S_ISDIR(status.st_mode):
        return status.st_size
    total = looked = 0
    waiting = [f"/proc/self/fd/{directory}/{name}"]
    while waiting and looked < MAX_MEASURED_ENTRIES:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                looked += 1
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    with suppress(OSError):
                        total += entry.stat(follow_symlinks=False).st_size
    return total


def _remove(above: int, name: str) -> None:
    top = _open_accessible(above, name)
    try:
        waiting = _empty_into(top, into=top)
        while waiting:
            below = waiting.pop()
            with suppress(OSError):
                directory = _open_accessible(top, below)
                try:
                    waiting += _empty_into(directory, into=top)
                finally:
                    os.close(directory)
                os.rmdir(below, dir_fd=top)
    finally:
        os.close(top)
    try:
        os.rmdir(name, dir_fd=above)
    except PermissionError:
        system.set_mode(above, stat.S_IMODE(os.fstat(above).st_mode) | stat.S_IRWXU)
        os.rmdir(name, dir_fd=above)


def _empty_into(directory: int, *, into: int) -> list[str]:
    """Remove the files of an open directory, move its directories to another, and return their names there."""
    moved: list[str] = []
    for name in system.listdir_at(directory):
        with suppress(OSError):
            if not stat.S_ISDIR(system.stat_at(directory, name).st_mode):
                system.unlink_at(directory, name)
            elif directory == into:
                moved.append(name)
            else:
                make_accessible(name, inside=directory)  # a directory that is moved must be writable itself
                beside = f"removed-{os.urandom(12).hex()}"
                os.rename(name, beside, src_dir_fd=directory, dst_dir_fd=into)
                moved.append(beside)
    return moved


def _open_accessible(directory: int, name: str) -> int:
    """Open a directory, which its owner can then list and empty. Raises OSError."""
    make_accessible(name, inside=directory)
    return os.open(name, _DIRECTORY, dir_fd=directory)


def make_accessible(name: str, *, inside: int | None = None) -> None:
    """Let the owner list and change a directory, a name of an open directory or a path; leave all else as it is.

    Raises OSError.
    """
    status = os.lstat(name) if inside is None else system.stat_at(inside, name)
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(name, stat.S_IMODE(status.st_mode) | stat.S_IRWXU, dir_fd=inside)
