"""Linux: system calls that macOS lacks, and the tables in /proc."""

import errno
import os
import sys

if sys.platform == "win32" or sys.platform == "darwin":
    raise ImportError("yarrow.platform.linux is for Linux and similar systems")

from pathlib import PurePath
from typing import TYPE_CHECKING, final

from yarrow.platform.posix import Posix

if TYPE_CHECKING:
    from yarrow.platform.base import ChangeReports


@final
class Linux(Posix):
    """Linux, and systems that otherwise resemble it."""

    NO_SANDBOX_REASON = ""

    def normcase(self, path: str) -> str:
        """Return a path in its form for comparison: unchanged."""
        return path

    def is_within(self, path: PurePath, place: PurePath) -> bool:
        return path.is_relative_to(place)

    def openat_nofollow(self, directory: int, names: tuple[str, ...], flags: int) -> int:
        # Imported here because many commands open nothing below a workspace, and ctypes is slow to import.
        from yarrow.platform import linux_syscalls

        if linux_syscalls.is_supported():
            return linux_syscalls.openat_nofollow(directory, names, flags)
        return super().openat_nofollow(directory, names, flags)

    def open_directory_changes(self) -> "ChangeReports | None":
        from yarrow.platform import linux_syscalls  # imports ctypes

        try:
            return linux_syscalls.DirectoryChanges()
        except OSError:
            return None

    def sync(self, descriptor: int, *, data_only: bool = False) -> None:
        if data_only:
            os.fdatasync(descriptor)
        else:
            os.fsync(descriptor)

    def copy_attributes(self, source: int, target: int) -> None:
        if hasattr(os, "listxattr"):  # missing on systems that otherwise resemble Linux
            for attribute in os.listxattr(source):
                os.setxattr(target, attribute, os.getxattr(source, attribute))

    def open_pidfd(self, pid: int) -> int:
        try:
            return os.pidfd_open(pid)
        except AttributeError:  # Python built for an older system
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None

    def scope_abstract_sockets(self) -> bool:
        from yarrow.platform import linux_syscalls

        return linux_syscalls.scope_abstract_sockets()

    def list_connected_addresses(self, port: int) -> list[str]:
        found: list[str] = []
        for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
            try:
                with open(table, encoding="ascii") as lines:
                    words = [line.split(None, 4) for line in lines]
            except OSError:  # no IPv6, or no such file
                continue
            own, established = f":{port:04X}", "01"
            found += [_parse_address(row[2]) for row in words[1:] if row[1].endswith(own) and row[3] == established]
        return found


def _parse_address(text: str) -> str:
    """Return the address in `0100007F:1F90`, which consists of 32-bit words in native byte order."""
    import socket
    import struct

    digits = text.partition(":")[0]
    numbers = [int(digits[start : start + 8], 16) for start in range(0, len(digits), 8)]
    family = socket.AF_INET if len(numbers) == 1 else socket.AF_INET6
    return socket.inet_ntop(family, struct.pack(f"={len(numbers)}I", *numbers)).removeprefix("::ffff:")
