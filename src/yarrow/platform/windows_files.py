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
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from yarrow.platform import windows_paths

if TYPE_CHECKING:
    from yarrow.platform.base import Platform
else:
    Platform = object  # type checkers compare the class with its contract; at run time nothing is inherited

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


class WindowsFiles(Platform):
    """Windows without processes and terminals."""

    BASE_FLAGS = os.O_BINARY | os.O_NOINHERIT
    NOFOLLOW = 0
    """No flag: `open_at` always fails if the path is a symlink."""
    NONBLOCK = 0
    """No flag: no path leads to a FIFO or a terminal here."""
    DIRECTORY = 1 << 40
    """Flag for `open_at` and `openat_nofollow` only: `os.open` opens no directory."""

    # ---- names of files ----

    def normcase(self, path: str) -> str:
        return windows_paths.normcase(path)

    def is_within(self, path: PurePath, place: PurePath) -> bool:
        return path.is_relative_to(place)  # paths of this system ignore case

    def explain_invalid_name(self, path: str) -> str:
        return windows_paths.explain_invalid_name(path)

    def to_posix(self, path: str) -> str:
        return windows_paths.to_posix(path)

    # ---- open directories and their content ----

    def open_directory(self, path: Path | str, *, follow: bool = True) -> int:
        from yarrow.platform import windows_api

        text = os.fspath(path)
        if not follow and _is_link(os.lstat(text)):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), text)
        descriptor = windows_api.open_directory(text)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), text)

    def open_at(self, directory: int, name: str, flags: int, *, mode: int = 0o777) -> int:
        path = _path_in(directory, name)
        is_directory = flags & self.DIRECTORY or _is_directory(path)
        descriptor = self.open_directory(path) if is_directory else os.open(path, flags | self.BASE_FLAGS, mode)
        try:
            # A symlink would have led to another path; nothing was read or written through it yet.
            if self.normcase(_path_of(descriptor)) == self.normcase(path):
                return descriptor
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)

    def openat_nofollow(self, directory: int, names: tuple[str, ...], flags: int) -> int:
        *above, last = names
        at = os.dup(directory)
        try:
            for name in above:
                below = self.open_at(at, name, self.DIRECTORY)
                os.close(at)
                at = below
            return self.open_at(at, last, flags)
        finally:
            os.close(at)

    def mkdir_at(self, directory: int, name: str) -> None:
        Path(_path_in(directory, name)).mkdir()

    def stat_at(self, directory: int, name: str) -> os.stat_result:
        return os.lstat(_path_in(directory, name))

    def can_write_at(self, directory: int, name: str) -> bool:
        return os.access(_path_in(directory, name), os.W_OK)

    def unlink_at(self, directory: int, name: str) -> None:
        Path(_path_in(directory, name)).unlink()

    def replace_at(self, directory: int, name: str, new: str) -> None:
        Path(_path_in(directory, name)).replace(_path_in(directory, new))

    def link_at(self, directory: int, name: str, new: str) -> None:
        Path(_path_in(directory, new)).hardlink_to(_path_in(directory, name))

    def scandir_at(self, directory: int) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        return os.scandir(_path_of(directory))

    def listdir_at(self, directory: int) -> list[str]:
        return [path.name for path in Path(_path_of(directory)).iterdir()]

    def open_directory_changes(self) -> None:
        """Return None: unsupported."""

    # ---- files: locks, durability, owners ----

    def try_lock(self, descriptor: int) -> None:
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(error.errno, error.strerror) from error
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)

    def try_lock_directory(self, path: Path) -> int:
        """Raise `OSError`: directories cannot be locked on this system."""
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), str(path))

    @contextmanager
    def lock_directory(self, path: Path) -> Generator[int]:
        descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | self.BASE_FLAGS, 0o600)
        try:
            last = time.monotonic() + LOCK_SECONDS
            while not self._is_locked(descriptor, last):
                time.sleep(LOOK_SECONDS)
            yield descriptor
        finally:
            os.close(descriptor)

    def _is_locked(self, descriptor: int, last: float) -> bool:
        """Try to lock a directory; return False if another process holds it. Raises `TimeoutError` after `last`."""
        try:
            self.try_lock(descriptor)
        except BlockingIOError as error:
            if time.monotonic() > last:
                raise TimeoutError(errno.ETIMEDOUT, "another process has locked the directory; try again") from error
            return False
        return True

    def sync(self, descriptor: int, *, data_only: bool = False) -> None:
        # The journal of the file system keeps the entries of directories; only an administrator can do more.
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            os.fsync(descriptor)

    def raise_open_file_limit(self, most: int) -> int:
        """Return `most`: processes have no limit here that could be raised."""
        return most

    def get_user_id(self) -> int:
        """Return a number that is the same for all users."""
        return 0

    def get_account_home(self, uid: int | None) -> str:
        """Return an empty text: there is no account database here."""
        return ""

    def is_root(self) -> bool:
        return False

    def is_owned(self, status: os.stat_result) -> bool:
        """Return True: the access list of the profile directory ensures it."""
        return True

    def is_private_mode(self, mode: int) -> bool:
        """Return True: the access list of the profile directory ensures it."""
        return True

    def set_mode(self, descriptor: int, mode: int) -> None:
        """Do nothing: a file inherits the access list of its directory."""

    def copy_owner(self, descriptor: int, like: os.stat_result) -> None:
        """Do nothing: a file belongs to its creator."""

    def copy_attributes(self, source: int, target: int) -> None:
        """Do nothing: the streams of a file are lost with the file that is replaced."""


def _path_of(descriptor: int) -> str:
    from yarrow.platform import windows_api

    return windows_api.path_of(descriptor)


def _path_in(directory: int, name: str) -> str:
    """Return the path of a name in an open directory. Raises `OSError` if it is not a valid file name."""
    path = _path_of(directory)
    if name in ("", "."):
        return path
    if name == ".." or "\\" in name or "/" in name or windows_paths.explain_invalid_part(name):
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
