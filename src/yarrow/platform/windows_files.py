"""File operations of Windows: open directories as handles, byte locks, no owners and no modes.

Windows cannot open a path relative to a directory. Instead, a handle prevents the directory and its parents from being
renamed, so that its path is as reliable as the handle.
"""

import errno
import os
import stat
import sys

if sys.platform != "win32":
    raise ImportError("yarrow.platform.windows_files is for Windows")

import msvcrt
import time
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from yarrow.platform.windows_paths import explain_invalid_part, normcase

BASE_FLAGS = os.O_BINARY | os.O_NOINHERIT
"""Flags to open a file in binary mode, not inherited by children."""
NOFOLLOW = 0
"""Flag to fail if the path is a symlink; `os.open` has none here, and `open_at` always fails then."""
NONBLOCK = 0
"""Flags against waiting for the other end of a FIFO and acquiring a terminal; no path leads to either here."""
DIRECTORY = 1 << 40
"""Flag to fail unless the path is a directory, for `open_at` and `openat_nofollow` only: `os.open` opens none."""
LOCK = ".lock"
"""Name of the file that is locked in place of its directory."""
LOCK_SECONDS = 30.0
"""Maximum seconds to wait for the lock of a directory; then an error is raised."""
LOOK_SECONDS = 0.02
"""Seconds between attempts to acquire the lock."""
_FAR = 1 << 30
"""Offset of the locked byte, past the text, because other processes cannot read a locked byte."""
_LINKS = frozenset({0xA000_000C, 0xA000_0003})
"""Reparse tags of a symlink and a junction; other tags mark files stored elsewhere and are not links."""


def open_directory(path: Path | str, *, follow: bool = True) -> int:
    """Return a descriptor of a directory for the functions named `*_at`; rejects a symlink unless `follow` is true.

    Raises `OSError`.
    """
    from yarrow.platform import windows_api

    text = os.fspath(path)
    if not follow and _is_link(os.lstat(text)):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), text)
    descriptor = windows_api.open_directory(text)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), text)


def open_at(directory: int, name: str, flags: int, *, mode: int = 0o777) -> int:
    """Open a name in an open directory; it must not be a symlink. Raises `OSError`."""
    path = _path_in(directory, name)
    is_directory = flags & DIRECTORY or _is_directory(path)
    descriptor = open_directory(path) if is_directory else os.open(path, flags | BASE_FLAGS, mode)
    try:
        # A symlink would have led to another path; nothing was read or written through it yet.
        if normcase(_path_of(descriptor)) == normcase(path):
            return descriptor
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)


def openat_nofollow(directory: int, names: tuple[str, ...], flags: int) -> int:
    """Open a path below an open directory, given by its names, none of which may be a symlink.

    Raises `OSError`.
    """
    *above, last = names
    at = os.dup(directory)
    try:
        for name in above:
            below = open_at(at, name, DIRECTORY)
            os.close(at)
            at = below
        return open_at(at, last, flags)
    finally:
        os.close(at)


def mkdir_at(directory: int, name: str) -> None:
    """Create a directory in an open one. Raises `OSError`."""
    Path(_path_in(directory, name)).mkdir()


def stat_at(directory: int, name: str) -> os.stat_result:
    """Return the status of a name in an open directory without following a symlink. Raises `OSError`."""
    return os.lstat(_path_in(directory, name))


def can_write_at(directory: int, name: str) -> bool:
    """Return whether a file in an open directory is writable or, for `.`, whether files can be created in it."""
    return os.access(_path_in(directory, name), os.W_OK)


def unlink_at(directory: int, name: str) -> None:
    """Remove a file in an open directory. Raises `OSError`."""
    Path(_path_in(directory, name)).unlink()


def replace_at(directory: int, name: str, new: str) -> None:
    """Rename a file in an open directory, replacing a file with the new name. Raises `OSError`."""
    Path(_path_in(directory, name)).replace(_path_in(directory, new))


def link_at(directory: int, name: str, new: str) -> None:
    """Add a hard link to a file in an open directory. Raises `OSError`, also if the new name exists."""
    Path(_path_in(directory, new)).hardlink_to(_path_in(directory, name))


def scandir_at(directory: int) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
    """Return an iterator over the entries of an open directory, to be closed. Raises `OSError`."""
    return os.scandir(_path_of(directory))


def listdir_at(directory: int) -> list[str]:
    """Return the names in an open directory. Raises `OSError`."""
    return [path.name for path in Path(_path_of(directory)).iterdir()]


def try_lock(descriptor: int) -> None:
    """Lock an open file without waiting. Raises `BlockingIOError` if another process holds the lock, else OSError."""
    os.lseek(descriptor, _FAR, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except PermissionError as error:
        raise BlockingIOError(error.errno, error.strerror) from error
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)


def try_lock_directory(path: Path) -> int:
    """Raise `OSError`: directories cannot be locked on this system."""
    raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), str(path))


@contextmanager
def lock_directory(path: Path) -> Generator[int]:
    """Wait for the exclusive lock of a directory; yield a descriptor for `sync`. Raises `OSError`."""
    descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | BASE_FLAGS, 0o600)
    try:
        last = time.monotonic() + LOCK_SECONDS
        while not _is_locked(descriptor, last):
            time.sleep(LOOK_SECONDS)
        yield descriptor
    finally:
        os.close(descriptor)


def sync(descriptor: int, *, data_only: bool = False) -> None:
    """Return once an open file, or the entries of a directory, would survive a power failure. Raises `OSError`.

    `data_only` skips metadata that is not needed to read the data. The entries of directories are kept by the journal
    of the file system; only an administrator can do more.
    """
    if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.fsync(descriptor)


def open_directory_changes() -> None:
    """Return an object that reports changes in directories; None if unsupported."""


def list_connected_addresses(port: int) -> list[str]:
    """Return the remote address of each connection to a local TCP port; empty if unknown."""
    return []


def raise_open_file_limit(most: int) -> int:
    """Return `most`: processes have no limit here that could be raised."""
    return most


def get_user_id() -> int:
    """Return the user id of this process; the same for all users here."""
    return 0


def get_account_home(uid: int | None) -> str:
    """Return an empty text: there is no account database here."""
    return ""


def is_root() -> bool:
    """Return whether this process is root, so that no permission is denied to it; always False here."""
    return False


def is_owned(status: os.stat_result) -> bool:
    """Return whether the user of this process owns a file; the access list of the profile directory ensures it here."""
    return True


def is_private_mode(mode: int) -> bool:
    """Return whether a file mode grants access to the owner only; the profile directory ensures it here."""
    return True


def set_mode(descriptor: int, mode: int) -> None:
    """Do nothing: a file inherits the access list of its directory."""


def copy_owner(descriptor: int, like: os.stat_result) -> None:
    """Do nothing: a file belongs to its creator."""


def copy_attributes(source: int, target: int) -> None:
    """Do nothing: the streams of a file are lost with the file that is replaced."""


def _path_of(descriptor: int) -> str:
    from yarrow.platform import windows_api

    return windows_api.path_of(descriptor)


def _path_in(directory: int, name: str) -> str:
    """Return the path of a name in an open directory. Raises `OSError` if it is not a valid file name."""
    path = _path_of(directory)
    if name in ("", "."):
        return path
    if name == ".." or "\\" in name or "/" in name or explain_invalid_part(name):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name)
    separator = "" if path.endswith(os.sep) else os.sep
    return f"{path}{separator}{name}"


def _is_directory(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)  # noqa: PTH116 (a Path would normalize the path)
    except OSError:
        return False


def _is_link(status: os.stat_result) -> bool:
    return status.st_reparse_tag in _LINKS


def _is_locked(descriptor: int, last: float) -> bool:
    """Try to lock a directory; return False if another process holds the lock. Raises `TimeoutError` after `last`."""
    try:
        try_lock(descriptor)
    except BlockingIOError as error:
        if time.monotonic() > last:
            raise TimeoutError(errno.ETIMEDOUT, "somebody else has the directory; try again") from error
        return False
    return True
