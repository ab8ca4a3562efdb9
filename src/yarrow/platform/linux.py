"""Linux implementation of `system`: its own parts and those shared with macOS."""

import errno
import os
import sys

if sys.platform == "win32" or sys.platform == "darwin":
    raise ImportError("yarrow.platform.linux is for Linux, and for what is like it")

from pathlib import PurePath
from typing import TYPE_CHECKING

from yarrow.platform.posix_files import (
    BASE_FLAGS,
    DIRECTORY,
    NOFOLLOW,
    NONBLOCK,
    can_write_at,
    copy_owner,
    explain_invalid_name,
    get_account_home,
    get_user_id,
    is_owned,
    is_private_mode,
    is_root,
    link_at,
    listdir_at,
    lock_directory,
    mkdir_at,
    open_at,
    open_directory,
    openat_stepwise,
    raise_open_file_limit,
    replace_at,
    scandir_at,
    set_mode,
    stat_at,
    to_posix,
    try_lock,
    try_lock_directory,
    unlink_at,
)
from yarrow.platform.posix_processes import (
    DEFAULT_EDITOR,
    HAS_TERMINAL_UI,
    HAS_UNIX_SOCKETS,
    KILL_SIGNAL,
    NO_SHELL_HINT,
    SHELL_PATHS,
    TERMINATION_SIGNALS,
    ULIMIT_SHELL,
    can_detect_peer_close,
    exit_at_stdin_end,
    find_shell,
    flush_input,
    is_in_background,
    is_peer_closed,
    is_socket_listening,
    kill_group,
    open_pipe,
    prepare_terminal,
    read_nonblocking,
    set_cbreak_mode,
    set_nonblocking,
    unwatch_readable,
    wait_readable,
    watch_readable,
)

if TYPE_CHECKING:
    from yarrow.platform.linux_syscalls import DirectoryChanges

__all__ = [
    "BASE_FLAGS",
    "DEFAULT_EDITOR",
    "DIRECTORY",
    "HAS_TERMINAL_UI",
    "HAS_UNIX_SOCKETS",
    "KILL_SIGNAL",
    "NOFOLLOW",
    "NONBLOCK",
    "NO_SANDBOX_REASON",
    "NO_SHELL_HINT",
    "SHELL_PATHS",
    "TERMINATION_SIGNALS",
    "ULIMIT_SHELL",
    "can_detect_peer_close",
    "can_write_at",
    "copy_attributes",
    "copy_owner",
    "create_job",
    "exit_at_stdin_end",
    "explain_invalid_name",
    "find_shell",
    "flush_input",
    "get_account_home",
    "get_user_id",
    "is_in_background",
    "is_owned",
    "is_peer_closed",
    "is_private_mode",
    "is_root",
    "is_socket_listening",
    "is_within",
    "kill_group",
    "link_at",
    "list_connected_addresses",
    "listdir_at",
    "lock_directory",
    "mkdir_at",
    "normcase",
    "open_at",
    "open_directory",
    "open_directory_changes",
    "open_pidfd",
    "open_pipe",
    "openat_nofollow",
    "prepare_terminal",
    "raise_open_file_limit",
    "read_nonblocking",
    "replace_at",
    "scandir_at",
    "scope_abstract_sockets",
    "set_cbreak_mode",
    "set_mode",
    "set_nonblocking",
    "stat_at",
    "sync",
    "to_posix",
    "try_lock",
    "try_lock_directory",
    "unlink_at",
    "unwatch_readable",
    "wait_readable",
    "watch_readable",
]

NO_SANDBOX_REASON = ""
"""Reason why this system has no sandbox; empty if a program provides one."""


def normcase(path: str) -> str:
    """Return a path in its form for comparison: unchanged."""
    return path


def is_within(path: PurePath, place: PurePath) -> bool:
    """Return whether a path is, or is below, another one, by the name rules of the system."""
    return path.is_relative_to(place)


def openat_nofollow(directory: int, names: tuple[str, ...], flags: int) -> int:
    """Open a path below an open directory, given by its names, none of which may be a symlink.

    Raises `OSError`.
    """
    # Imported here because many commands open nothing below a workspace, and ctypes is slow to import.
    from yarrow.platform import linux_syscalls

    if linux_syscalls.is_supported():
        return linux_syscalls.openat_nofollow(directory, names, flags)
    return openat_stepwise(directory, names, flags)


def sync(descriptor: int, *, data_only: bool = False) -> None:
    """Return once an open file, or the entries of a directory, would survive a power failure. Raises `OSError`.

    `data_only` skips metadata that is not needed to read the data.
    """
    if data_only:
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def copy_attributes(source: int, target: int) -> None:
    """Copy the extended attributes of an open file, such as access lists, to another. Raises `OSError`."""
    if hasattr(os, "listxattr"):  # missing on systems that otherwise resemble Linux
        for attribute in os.listxattr(source):
            os.setxattr(target, attribute, os.getxattr(source, attribute))


def list_connected_addresses(port: int) -> list[str]:
    """Return the remote address of each connection to a local TCP port; empty if unknown."""
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


def open_pidfd(pid: int) -> int:
    """Return a descriptor that becomes readable when a child exits. Raises `OSError` if unsupported."""
    try:
        return os.pidfd_open(pid)
    except AttributeError:  # Python built for an older system
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None


def open_directory_changes() -> "DirectoryChanges | None":
    """Return an object that reports changes in directories; None if unsupported."""
    from yarrow.platform import linux_syscalls  # imports ctypes

    try:
        return linux_syscalls.DirectoryChanges()
    except OSError:
        return None


def scope_abstract_sockets() -> bool:
    """Deny the calling thread and its children abstract sockets of other processes; return whether that worked."""
    from yarrow.platform import linux_syscalls

    return linux_syscalls.scope_abstract_sockets()


def create_job(leader: int) -> None:
    """Return a job that contains a child and everything it starts; None on systems with process groups."""
