"""File operations shared by Linux and macOS: open directories, owners, modes, locks."""

import os
import sys

if sys.platform == "win32":
    raise ImportError("yarrow.platform.posix_files is not for Windows")

import pwd
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

BASE_FLAGS = os.O_CLOEXEC
"""Flags to open a file in binary mode, not inherited by children."""
NOFOLLOW = os.O_NOFOLLOW
"""Flag to fail if the path is a symlink."""
NONBLOCK = os.O_NONBLOCK | os.O_NOCTTY
"""Flags against waiting for the other end of a FIFO and acquiring a terminal."""
DIRECTORY = os.O_DIRECTORY
"""Flag to fail unless the path is a directory."""


# ---- open directories and their content ----


def open_directory(path: Path | str, *, follow: bool = True) -> int:
    """Return a descriptor of a directory for the functions named `*_at`; rejects a symlink unless `follow` is true.

    Raises `OSError`.
    """
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))


def open_at(directory: int, name: str, flags: int, *, mode: int = 0o777) -> int:
    """Open a name in an open directory; it must not be a symlink. Raises `OSError`."""
    return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=directory)


def openat_stepwise(directory: int, names: tuple[str, ...], flags: int) -> int:
    """Open a path below an open directory, given by its names, none of which may be a symlink.

    Raises `OSError`.
    """
    *above, last = names
    at = os.dup(directory)
    try:
        for name in above:
            below = open_at(at, name, os.O_RDONLY | os.O_DIRECTORY)
            os.close(at)
            at = below
        return open_at(at, last, flags)
    finally:
        os.close(at)


def mkdir_at(directory: int, name: str) -> None:
    """Create a directory in an open one. Raises `OSError`."""
    os.mkdir(name, dir_fd=directory)


def stat_at(directory: int, name: str) -> os.stat_result:
    """Return the status of a name in an open directory without following a symlink. Raises `OSError`."""
    return os.stat(name, dir_fd=directory, follow_symlinks=False)


def can_write_at(directory: int, name: str) -> bool:
    """Return whether a file in an open directory is writable or, for `.`, whether files can be created in it."""
    return os.access(name, os.W_OK | os.X_OK if name == "." else os.W_OK, dir_fd=directory)


def unlink_at(directory: int, name: str) -> None:
    """Remove a file in an open directory. Raises `OSError`."""
    os.unlink(name, dir_fd=directory)


def replace_at(directory: int, name: str, new: str) -> None:
    """Rename a file in an open directory, replacing a file with the new name. Raises `OSError`."""
    os.replace(name, new, src_dir_fd=directory, dst_dir_fd=directory)


def link_at(directory: int, name: str, new: str) -> None:
    """Add a hard link to a file in an open directory. Raises `OSError`, also if the new name exists."""
    os.link(name, new, src_dir_fd=directory, dst_dir_fd=directory)


def scandir_at(directory: int) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
    """Return an iterator over the entries of an open directory, to be closed. Raises `OSError`."""
    return os.scandir(directory)


def listdir_at(directory: int) -> list[str]:
    """Return the names in an open directory. Raises `OSError`."""
    return os.listdir(directory)


# ---- files: owners, locks, durability ----


def try_lock(descriptor: int) -> None:
    """Lock an open file without waiting. Raises `BlockingIOError` if another process holds the lock, else OSError."""
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def try_lock_directory(path: Path) -> int:
    """Lock a directory without waiting, and return the descriptor that holds the lock. Raises as `try_lock`."""
    descriptor = open_directory(path, follow=False)
    try:
        try_lock(descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def lock_directory(path: Path) -> Generator[int]:
    """Wait for the exclusive lock of a directory; yield a descriptor for `sync`. Raises `OSError`."""
    import fcntl

    descriptor = open_directory(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def raise_open_file_limit(most: int) -> int:
    """Raise this process's limit of open files to `most`, or as far as the system allows, and return the limit.

    It is never lowered.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else soft


def get_user_id() -> int:
    """Return the user id of this process, which owns its files."""
    return os.getuid()


def get_account_home(uid: int | None) -> str:
    """Return the home in the account database for a user id, None for the current user; empty if there is none."""
    with suppress(KeyError):
        return pwd.getpwuid(os.geteuid() if uid is None else uid).pw_dir
    return ""


def is_root() -> bool:
    """Return whether this process is root, so that no permission is denied to it."""
    return os.geteuid() == 0


def is_owned(status: os.stat_result) -> bool:
    """Return whether the user of this process owns a file."""
    return status.st_uid == os.geteuid()


def is_private_mode(mode: int) -> bool:
    """Return whether a file mode grants access to the owner only."""
    return not mode & 0o077


def set_mode(descriptor: int, mode: int) -> None:
    """Set the mode of an open file. Raises `OSError`."""
    os.fchmod(descriptor, mode)


def copy_owner(descriptor: int, like: os.stat_result) -> None:
    """Set the owner and group of an open file to those of another. Raises `PermissionError` if not permitted."""
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (like.st_uid, like.st_gid):
        os.fchown(descriptor, like.st_uid, like.st_gid)


def explain_invalid_name(path: str) -> str:
    """Return why a name in a path is not the name of a file; empty if all are."""
    return ""


def to_posix(path: str) -> str:
    """Return a normal path with slashes as separators."""
    # `normpath` keeps two leading slashes, which mean nothing special here.
    return "/" + path.lstrip("/")
