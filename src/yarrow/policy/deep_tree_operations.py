"""Walks, removal and measurement of directory trees, even deeper than any path or call stack allows."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from yarrow.platform import system

MAX_MEASURED_ENTRIES = 1_000_000
"""Maximum entries of a tree whose sizes are added up; the rest count as 0 bytes."""
_DIRECTORY = os.O_RDONLY | system.DIRECTORY | system.NOFOLLOW | system.BASE_FLAGS


def walk_tree(top: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each directory of a tree with the names of its subdirectories and of its other entries.

    A subdirectory whose name the caller removes is skipped. `os.walk` is recursive, so that a deep tree makes it fail.
    """
    waiting = [str(top)]
    while waiting:
        directory = waiting.pop()
        names: list[str] = []
        others: list[str] = []
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                (names if entry.is_dir(follow_symlinks=False) else others).append(entry.name)
        yield directory, names, others
        waiting += [f"{directory}/{name}" for name in reversed(names)]


def remove_tree(path: Path) -> None:
    """Remove a directory with its contents, including directories closed to their owner, as package caches create them.

    Each directory is moved to the top before it is emptied: two descriptors are enough, and no recursion is needed.
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
    """Return the total bytes of all files at a name in an open directory, as far down as system paths reach."""
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
    """Remove the files of an open directory, move its subdirectories to `into`, and return their names there."""
    moved: list[str] = []
    for name in system.listdir_at(directory):
        with suppress(OSError):
            if not stat.S_ISDIR(system.stat_at(directory, name).st_mode):
                system.unlink_at(directory, name)
            elif directory == into:
                moved.append(name)
            else:
                make_accessible(name, inside=directory)  # a directory can only be moved if it is writable itself
                beside = f"removed-{os.urandom(12).hex()}"
                os.rename(name, beside, src_dir_fd=directory, dst_dir_fd=into)
                moved.append(beside)
    return moved


def _open_accessible(directory: int, name: str) -> int:
    """Open a directory after making it listable and writable for its owner. Raises OSError."""
    make_accessible(name, inside=directory)
    return os.open(name, _DIRECTORY, dir_fd=directory)


def make_accessible(name: str, *, inside: int | None = None) -> None:
    """Let the owner list and change a directory, given as a name in an open directory or as a path.

    Anything that is not a directory is left alone. Raises OSError.
    """
    status = os.lstat(name) if inside is None else system.stat_at(inside, name)
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(name, stat.S_IMODE(status.st_mode) | stat.S_IRWXU, dir_fd=inside)
