"""macOS: names without case, flushes of the drive's cache, and no Linux system calls."""

import errno
import os
import sys

if sys.platform == "win32":
    raise ImportError("yarrow.platform.macos is not for Windows")

from pathlib import PurePath
from typing import final

from yarrow.platform.posix import Posix

_NO_FULL_SYNC = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY, errno.ENODEV})
"""Errors of file systems, such as network ones, that cannot flush the cache of a drive."""


@final
class MacOS(Posix):
    """macOS."""

    NO_SANDBOX_REASON = "Yarrow has no sandbox on macOS yet"

    def normcase(self, path: str) -> str:
        """Return a path in its form for comparison: the usual file system ignores case and Unicode normalization."""
        import unicodedata

        return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())

    def is_within(self, path: PurePath, place: PurePath) -> bool:
        return PurePath(self.normcase(str(path))).is_relative_to(self.normcase(str(place)))

    def open_directory_changes(self) -> None:
        """Return None: unsupported."""

    def sync(self, descriptor: int, *, data_only: bool = False) -> None:
        import fcntl

        full: int = getattr(fcntl, "F_FULLFSYNC")  # noqa: B009 (type checkers of other systems do not know the name)
        try:
            fcntl.fcntl(descriptor, full)  # fsync of this system leaves the data in the drive's cache
        except OSError as error:
            if error.errno not in _NO_FULL_SYNC:
                raise
            os.fsync(descriptor)

    def copy_attributes(self, source: int, target: int) -> None:
        """Do nothing: Python cannot read extended attributes on this system."""

    def open_pidfd(self, pid: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    def scope_abstract_sockets(self) -> bool:
        return False

    def list_connected_addresses(self, port: int) -> list[str]:
        return []
