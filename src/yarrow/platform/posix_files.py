"""What Linux and macOS do alike with files: directories that are held open, owners, modes, locks."""

import os
import sys

if sys.platform == "win32":
    raise ImportError("yarrow.platform.posix_files is not for Windows")

import pwd
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

BASE_FLAGS = os.O_CLOEXEC
"""Opens a file for bytes, and for this process alone."""
NOFOLLOW = os.O_NOFOLLOW
"""Opens no link."""
NONBLOCK = os.O_NONBLOCK | os.O_NOCTTY
"""Neither waits for whoever writes into a pipe, nor takes a terminal for its own."""
DIRECTORY = os.O_DIRECTORY
"""Opens nothing but a directory."""


# ---- directories that are held open, and what lies in them ----


def open_directory(path: Path | str, *, follow: bool = True) -> int:
    """Return a descriptor of a directory, by which what lies in it is reached; no link unless `follow` says so.

    Raises `OSError`.
    """
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))


def open_at(directory: int, name: str, flags: int, *, mode: int = 0o777) -> int:
    """Open what an open directory holds by a name, which is no link. Raises `OSError`."""
    return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=directory)


def openat_stepwise(directory: int, names: tuple[str, ...], flags: int) -> int:
    """Open what lies below an open directory by one name after the other, none of which may be a link.

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
    """Make a directory in an open one. Raises `OSError`."""
    os.mkdir(name, dir_fd=directory)


def stat_at(directory: int, name: str) -> os.stat_result:
    """Return what the system says of a name in an open directory, of a link itself. Raises `OSError`."""
    return os.stat(name, dir_fd=directory, follow_symlinks=False)


def can_write_at(directory: int, name: str) -> bool:
    """Whether a file of an open directory may be written; of `.` whether files may be made in it."""
    return os.access(name, os.W_OK | os.X_OK if name == "." else os.W_OK, dir_fd=directory)


def unlink_at(directory: int, name: str) -> None:
    """Remove a file of an open directory. Raises `OSError`."""
    os.unlink(name, dir_fd=directory)


def replace_at(directory: int, name: str, new: str) -> None:
    """Give a file of an open directory another name, in place of what had that one. Raises `OSError`."""
    os.replace(name, new, src_dir_fd=directory, dst_dir_fd=directory)


def link_at(directory: int, name: str, new: str) -> None:
    """Give a file of an open directory a further name. Raises `OSError`, also when that is taken."""
    os.link(name, new, src_dir_fd=directory, dst_dir_fd=directory)


def scandir_at(directory: int) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
    """Return what an open directory holds, to be closed. Raises `OSError`."""
    return os.scandir(directory)


def listdir_at(directory: int) -> list[str]:
    """Return the names in an open directory. Raises `OSError`."""
    return os.listdir(directory)


# ---- files: whose they are, who else uses them, when they are on the disk ----


def try_lock(descriptor: int) -> None:
    """Lock an open file without waiting. Raises `BlockingIOError` where somebody else has it, else OSError."""
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
    """Wait until nobody else has a directory, and have it; gives a descriptor for `sync`. Raises `OSError`."""
    import fcntl

    descriptor = open_directory(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def raise_open_file_limit(most: int) -> int:
    """Raise the limit of this process on open files to so many, as far as the system allows, and return the limit.

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
    """Return the number that the files of this user bear."""
    return os.getuid()


def get_account_home(uid: int | None) -> str:
    """Return the home that the list of users has for a user, None for who runs this; empty when it has none."""
    with suppress(KeyError):
        return pwd.getpwuid(os.geteuid() if uid is None else uid).pw_dir
    return ""


def is_root() -> bool:
    """Whether nothing is refused to this process."""
    return os.geteuid() == 0


def is_owned(status: os.stat_result) -> bool:
    """Whether a file belongs to who runs this process."""
    return status.st_uid == os.geteuid()


def is_private_mode(mode: int) -> bool:
    """Whether a file of a mode is closed to all but its owner."""
    return not mode & 0o077


def set_mode(descriptor: int, mode: int) -> None:
    """Give an open file a mode. Raises `OSError`."""
    os.fchmod(descriptor, mode)


def copy_owner(descriptor: int, like: os.stat_result) -> None:
    """Give an open file to the owner and group of another. Raises `PermissionError` when it is not ours to give."""
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (like.st_uid, like.st_gid):
        os.fchown(descriptor, like.st_uid, like.st_gid)


def explain_invalid_name(path: str) -> str:
    """Return why a name in a path means something else than a file of that name; empty when none does."""
    return ""


def to_posix(path: str) -> str:
    """Return a normal path with slashes between its names."""
    # Two slashes at the beginning mean something of their own to `normpath`, and nothing to anybody else.
    return "/" + path.lstrip("/")
