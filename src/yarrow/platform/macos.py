"""macOS: what it alone has, and what it has in common with Linux."""

import errno
import os
import sys

if sys.platform == "win32":
    raise ImportError("yarrow.platform.macos is not for Windows")

from pathlib import PurePath

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

WITHOUT_SANDBOX = "Yarrow has no sandbox for macOS yet"
"""Why there can be no sandbox on this system; empty where a program makes one."""
_NO_FULL_SYNC = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY, errno.ENODEV})
"""How a file system, such as one of the network, says that it cannot empty a drive's cache."""


def connected_to(port: int) -> list[str]:  # noqa: ARG001 (no file tells it here)
    """Return the addresses connected to a TCP port of this machine, one for each connection; none if unknown."""
    return []


def compared(path: str) -> str:
    """Return a path as it is compared with others: the usual file system knows names in any case, and accents too."""
    import unicodedata

    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


def lies_in(path: PurePath, place: PurePath) -> bool:
    """Whether a path is, or lies in, another, as the system tells names apart."""
    return PurePath(compared(str(path))).is_relative_to(compared(str(place)))


def open_names(directory: int, names: tuple[str, ...], flags: int) -> int:
    """Open what lies below an open directory by one name after the other, none of which may be a link.

    Raises `OSError`.
    """
    return one_by_one(directory, names, flags)


def sync(descriptor: int, *, data_only: bool = False) -> None:  # noqa: ARG001 (there is one way for both)
    """Return when an open file, or the entries of a directory, survive a power failure. Raises `OSError`.

    `data_only` leaves out what is not needed to read a file's data again.
    """
    import fcntl

    # Found by name, since it is there on this system alone.
    full: int = getattr(fcntl, "F_FULLFSYNC")  # noqa: B009
    try:
        fcntl.fcntl(descriptor, full)  # fsync of this system leaves the data in the drive's cache
    except OSError as error:
        if error.errno not in _NO_FULL_SYNC:
            raise
        os.fsync(descriptor)


def copy_attributes(source: int, target: int) -> None:
    """Do nothing: Python reads no extended attributes on this system."""


def directory_changes() -> None:
    """Return what reports changes in directories; None where nothing does."""


def process_descriptor(pid: int) -> int:  # noqa: ARG001 (there is none here)
    """Return a descriptor that can be read when a child has ended. Raises `OSError` where there is no such thing."""
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def scope_abstract_sockets() -> bool:
    """Keep the calling thread, and what it starts, from abstract sockets of others; return whether the system can."""
    return False


def job_of(leader: int) -> None:
    """Return what holds a child and all that it starts together; None where a process group does."""
