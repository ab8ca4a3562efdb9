"""Linux: what it alone has, and what it has in common with macOS."""

import errno
import os
import sys

if sys.platform == "win32" or sys.platform == "darwin":
    raise ImportError("yarrow.platform.linux is for Linux, and for what is like it")

from pathlib import PurePath
from typing import TYPE_CHECKING

from yarrow.platform.posix_files import (
    DIRECTORY,
    NO_LINK,
    NO_WAIT,
    PLAIN,
    account_home,
    allow_open_files,
    alone_in,
    can_write_in,
    entries_in,
    give_owner,
    is_closed,
    is_ours,
    is_root,
    link_in,
    lock,
    lock_folder,
    make_in,
    names_in,
    odd_name,
    one_by_one,
    open_folder,
    open_in,
    replace_in,
    set_mode,
    slashed,
    stat_in,
    unlink_in,
    user_id,
)
from yarrow.platform.posix_programs import (
    BOUNDING_SHELL,
    ENDING,
    HAS_TERMINAL_UI,
    HAS_UNIX_SOCKETS,
    KILL,
    SHELLS,
    USUAL_EDITOR,
    WITHOUT_SHELL,
    answers,
    by_keys,
    comes,
    end_with_input,
    find_shell,
    forget_typed,
    in_background,
    is_left,
    kill_group,
    never_wait,
    open_pipe,
    prepare_terminal,
    read_now,
    tells_of_reader,
    unwatch,
    watch,
)

if TYPE_CHECKING:
    from yarrow.platform.inotify import DirectoryChanges

__all__ = [
    "BOUNDING_SHELL",
    "DIRECTORY",
    "ENDING",
    "HAS_TERMINAL_UI",
    "HAS_UNIX_SOCKETS",
    "KILL",
    "NO_LINK",
    "NO_WAIT",
    "PLAIN",
    "SHELLS",
    "USUAL_EDITOR",
    "WITHOUT_SANDBOX",
    "WITHOUT_SHELL",
    "account_home",
    "allow_open_files",
    "alone_in",
    "answers",
    "by_keys",
    "can_write_in",
    "comes",
    "compared",
    "connected_to",
    "copy_attributes",
    "directory_changes",
    "end_with_input",
    "entries_in",
    "find_shell",
    "forget_typed",
    "give_owner",
    "in_background",
    "is_closed",
    "is_left",
    "is_ours",
    "is_root",
    "job_of",
    "kill_group",
    "lies_in",
    "link_in",
    "lock",
    "lock_folder",
    "make_in",
    "names_in",
    "never_wait",
    "odd_name",
    "open_folder",
    "open_in",
    "open_names",
    "open_pipe",
    "prepare_terminal",
    "process_descriptor",
    "read_now",
    "replace_in",
    "scope_abstract_sockets",
    "set_mode",
    "slashed",
    "stat_in",
    "sync",
    "tells_of_reader",
    "unlink_in",
    "unwatch",
    "user_id",
    "watch",
]

WITHOUT_SANDBOX = ""
"""Why there can be no sandbox on this system; empty where a program makes one."""


def compared(path: str) -> str:
    """Return a path as it is compared with others: as it is."""
    return path


def lies_in(path: PurePath, place: PurePath) -> bool:
    """Whether a path is, or lies in, another, as the system tells names apart."""
    return path.is_relative_to(place)


def open_names(directory: int, names: tuple[str, ...], flags: int) -> int:
    """Open what lies below an open directory by one name after the other, none of which may be a link.

    Raises `OSError`.
    """
    # Here, since many commands open nothing below a workspace, and ctypes takes a while to import.
    from yarrow.platform import openat2

    if openat2.works():
        return openat2.open_names(directory, names, flags)
    return one_by_one(directory, names, flags)


def sync(descriptor: int, *, data_only: bool = False) -> None:
    """Return when an open file, or the entries of a directory, survive a power failure. Raises `OSError`.

    `data_only` leaves out what is not needed to read a file's data again.
    """
    if data_only:
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def copy_attributes(source: int, target: int) -> None:
    """Give an open file the extended attributes of another, access lists among them. Raises `OSError`."""
    if hasattr(os, "listxattr"):  # not so on systems that are like Linux in all else
        for attribute in os.listxattr(source):
            os.setxattr(target, attribute, os.getxattr(source, attribute))


def connected_to(port: int) -> list[str]:
    """Return the addresses connected to a TCP port of this machine, one for each connection; none if unknown."""
    found: list[str] = []
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        try:
            with open(table, encoding="ascii") as lines:
                words = [line.split(None, 4) for line in lines]
        except OSError:  # no IPv6, or no such file
            continue
        own, established = f":{port:04X}", "01"
        found += [_address(row[2]) for row in words[1:] if row[1].endswith(own) and row[3] == established]
    return found


def _address(text: str) -> str:
    """Return the address in `0100007F:1F90`, whose 32-bit words are in the machine's byte order."""
    import socket
    import struct

    digits = text.partition(":")[0]
    numbers = [int(digits[start : start + 8], 16) for start in range(0, len(digits), 8)]
    family = socket.AF_INET if len(numbers) == 1 else socket.AF_INET6
    return socket.inet_ntop(family, struct.pack(f"={len(numbers)}I", *numbers)).removeprefix("::ffff:")


def process_descriptor(pid: int) -> int:
    """Return a descriptor that can be read when a child has ended. Raises `OSError` where there is no such thing."""
    try:
        return os.pidfd_open(pid)
    except AttributeError:  # a Python that was built for an older system
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None


def directory_changes() -> "DirectoryChanges | None":
    """Return what reports changes in directories; None where nothing does."""
    from yarrow.platform import inotify  # with ctypes

    try:
        return inotify.DirectoryChanges()
    except OSError:
        return None


def scope_abstract_sockets() -> bool:
    """Keep the calling thread, and what it starts, from abstract sockets of others; return whether the system can."""
    from yarrow.platform import landlock

    return landlock.scope_abstract_sockets()


def job_of(leader: int) -> None:
    """Return what holds a child and all that it starts together; None where a process group does."""
