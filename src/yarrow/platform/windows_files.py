"""What Windows does with files: directories that are held open by handles, locks of bytes, no owners and no modes.

There is no opening relative to a directory. A handle that does not let it be renamed takes the place of that: what is
held stays where it is, and the directories above it do, so that its path is as good as the handle.
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
"""Opens a file for bytes, and for this process alone."""
NOFOLLOW = 0
"""Opens no link; here it is not known to `os.open`, and `open_at` does so."""
NONBLOCK = 0
"""Neither waits for whoever writes into a pipe, nor takes a terminal for its own; no path leads to either here."""
DIRECTORY = 1 << 40
"""Opens nothing but a directory; for `open_at` and `openat_nofollow` alone, since `os.open` opens none here."""
LOCK = ".lock"
"""The file in a directory that is locked in place of the directory."""
LOCK_SECONDS = 30.0
"""How long is waited for a directory that somebody else has; then that is an error."""
LOOK_SECONDS = 0.02
"""How far apart it is looked whether it is free."""
_FAR = 1 << 30
"""Where the locked byte lies: past the text, for a locked byte cannot be read by others."""
_LINKS = frozenset({0xA000_000C, 0xA000_0003})
"""Tags of a symbolic link and of a junction; others stand for files that are kept elsewhere, and are none."""


def open_directory(path: Path | str, *, follow: bool = True) -> int:
    """Return a descriptor of a directory, by which what lies in it is reached; no link unless `follow` says so.

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
    """Open what an open directory holds by a name, which is no link. Raises `OSError`."""
    path = _path_in(directory, name)
    is_directory = flags & DIRECTORY or _is_directory(path)
    descriptor = open_directory(path) if is_directory else os.open(path, flags | BASE_FLAGS, mode)
    try:
        # A link would have led to another path; nothing was read or written by it yet.
        if normcase(_path_of(descriptor)) == normcase(path):
            return descriptor
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)


def openat_nofollow(directory: int, names: tuple[str, ...], flags: int) -> int:
    """Open what lies below an open directory by one name after the other, none of which may be a link.

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
    """Make a directory in an open one. Raises `OSError`."""
    Path(_path_in(directory, name)).mkdir()


def stat_at(directory: int, name: str) -> os.stat_result:
    """Return what the system says of a name in an open directory, of a link itself. Raises `OSError`."""
    return os.lstat(_path_in(directory, name))


def can_write_at(directory: int, name: str) -> bool:
    """Whether a file of an open directory may be written; of `.` whether files may be made in it."""
    return os.access(_path_in(directory, name), os.W_OK)


def unlink_at(directory: int, name: str) -> None:
    """Remove a file of an open directory. Raises `OSError`."""
    Path(_path_in(directory, name)).unlink()


def replace_at(directory: int, name: str, new: str) -> None:
    """Give a file of an open directory another name, in place of what had that one. Raises `OSError`."""
    Path(_path_in(directory, name)).replace(_path_in(directory, new))


def link_at(directory: int, name: str, new: str) -> None:
    """Give a file of an open directory a further name. Raises `OSError`, also when that is taken."""
    Path(_path_in(directory, new)).hardlink_to(_path_in(directory, name))


def scandir_at(directory: int) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
    """Return what an open directory holds, to be closed. Raises `OSError`."""
    return os.scandir(_path_of(directory))


def listdir_at(directory: int) -> list[str]:
    """Return the names in an open directory. Raises `OSError`."""
    return [path.name for path in Path(_path_of(directory)).iterdir()]


def try_lock(descriptor: int) -> None:
    """Lock an open file without waiting. Raises `BlockingIOError` where somebody else has it, else OSError."""
    os.lseek(descriptor, _FAR, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except PermissionError as error:
        raise BlockingIOError(error.errno, error.strerror) from error
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)


def try_lock_directory(path: Path) -> int:
    """Lock a directory without waiting, and return the descriptor that holds the lock. Raises as `try_lock`.

    No directory is locked here, which is an `OSError`.
    """
    raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), str(path))


@contextmanager
def lock_directory(path: Path) -> Generator[int]:
    """Wait until nobody else has a directory, and have it; gives a descriptor for `sync`. Raises `OSError`."""
    descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | BASE_FLAGS, 0o600)
    try:
        last = time.monotonic() + LOCK_SECONDS
        while not _is_locked(descriptor, last):
            time.sleep(LOOK_SECONDS)
        yield descriptor
    finally:
        os.close(descriptor)


def sync(descriptor: int, *, data_only: bool = False) -> None:
    """Return when an open file, or the entries of a directory, survive a power failure. Raises `OSError`.

    `data_only` leaves out what is not needed to read a file's data again. The journal of the file system keeps the
    entries of directories, and nobody but an administrator can ask for more.
    """
    if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.fsync(descriptor)


def open_directory_changes() -> None:
    """Return what reports changes in directories; None where nothing does."""


def list_connected_addresses(port: int) -> list[str]:
    """Return the addresses connected to a TCP port of this machine, one for each connection; none if unknown."""
    return []


def raise_open_file_limit(most: int) -> int:
    """Return `most`: there is no limit of a process here that could be raised."""
    return most


def get_user_id() -> int:
    """Return the number that the files of this user bear; here it is the same for all."""
    return 0


def get_account_home(uid: int | None) -> str:
    """Return the home that the list of users has for a user; there is no such list."""
    return ""


def is_root() -> bool:
    """Whether nothing is refused to this process; nobody is told so here."""
    return False


def is_owned(status: os.stat_result) -> bool:
    """Whether a file belongs to who runs this process; here the access list of the profile's directory sees to it."""
    return True


def is_private_mode(mode: int) -> bool:
    """Whether a file of a mode is closed to all but its owner; here the profile's directory is, with all in it."""
    return True


def set_mode(descriptor: int, mode: int) -> None:
    """Do nothing: a file has the access list that its directory hands down."""


def copy_owner(descriptor: int, like: os.stat_result) -> None:
    """Do nothing: a file belongs to who made it."""


def copy_attributes(source: int, target: int) -> None:
    """Do nothing: streams within a file stay with the one that is replaced."""


def _path_of(descriptor: int) -> str:
    from yarrow.platform import windows_api

    return windows_api.path_of(descriptor)


def _path_in(directory: int, name: str) -> str:
    """Return the path of a name in an open directory. Raises `OSError` for what is not the name of a file."""
    path = _path_of(directory)
    if name in ("", "."):
        return path
    if name == ".." or "\\" in name or "/" in name or explain_invalid_part(name):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name)
    separator = "" if path.endswith(os.sep) else os.sep
    return f"{path}{separator}{name}"


def _is_directory(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)  # noqa: PTH116 (a Path would take the path apart)
    except OSError:
        return False


def _is_link(status: os.stat_result) -> bool:
    return status.st_reparse_tag in _LINKS


def _is_locked(descriptor: int, last: float) -> bool:
    """Take the lock of a directory; False where somebody else has it, an error where they had it for too long."""
    try:
        try_lock(descriptor)
    except BlockingIOError as error:
        if time.monotonic() > last:
            raise TimeoutError(errno.ETIMEDOUT, "somebody else has the directory; try again") from error
        return False
    return True
