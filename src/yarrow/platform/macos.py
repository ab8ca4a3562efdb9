"""macOS implementation of `system`: its own parts and those shared with Linux."""

import errno
import os
import sys

if sys.platform == "win32":
    raise ImportError("yarrow.platform.macos is not for Windows")

from pathlib import PurePath

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

NO_SANDBOX_REASON = "Yarrow has no sandbox for macOS yet"
"""Reason why this system has no sandbox; empty if a program provides one."""
_NO_FULL_SYNC = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY, errno.ENODEV})
"""Errors of file systems, such as network ones, that cannot flush the cache of a drive."""


def list_connected_addresses(port: int) -> list[str]:
    """Return the remote address of each connection to a local TCP port; empty if unknown."""
    return []


def normcase(path: str) -> str:
    """Return a path in its form for comparison: the usual file system ignores case and Unicode normalization."""
    import unicodedata

    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


def is_within(path: PurePath, place: PurePath) -> bool:
    """Return whether a path is, or is below, another one, by the name rules of the system."""
    return PurePath(normcase(str(path))).is_relative_to(normcase(str(place)))


def openat_nofollow(directory: int, names: tuple[str, ...], flags: int) -> int:
    """Open a path below an open directory, given by its names, none of which may be a symlink.

    Raises `OSError`.
    """
    return openat_stepwise(directory, names, flags)


def sync(descriptor: int, *, data_only: bool = False) -> None:
    """Return once an open file, or the entries of a directory, would survive a power failure. Raises `OSError`.

    `data_only` skips metadata that is not needed to read the data.
    """
    import fcntl

    full: int = getattr(fcntl, "F_FULLFSYNC")  # noqa: B009 (type checkers of other systems do not know the name)
    try:
        fcntl.fcntl(descriptor, full)  # fsync of this system leaves the data in the drive's cache
    except OSError as error:
        if error.errno not in _NO_FULL_SYNC:
            raise
        os.fsync(descriptor)


def copy_attributes(source: int, target: int) -> None:
    """Do nothing: Python cannot read extended attributes on this system."""


def open_directory_changes() -> None:
    """Return an object that reports changes in directories; None if unsupported."""


def open_pidfd(pid: int) -> int:
    """Return a descriptor that becomes readable when a child exits. Raises `OSError` if unsupported."""
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def scope_abstract_sockets() -> bool:
    """Deny the calling thread and its children abstract sockets of other processes; return whether that worked."""
    return False


def create_job(leader: int) -> None:
    """Return a job that contains a child and everything it starts; None on systems with process groups."""
