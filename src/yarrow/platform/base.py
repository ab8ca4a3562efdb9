"""Contract of every operating system: the operations that Yarrow needs, and the types that they return.

Pyright rejects a system that lacks an operation or a constant, or has one of another type. Nothing imports this module
at run time, because creating abstract classes would delay each start.
"""

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class ProcessTree(Protocol):
    """The running processes of one call."""

    def alive(self) -> list[int]:
        """Return targets for `kill` and `send` that reach the running processes."""
        ...

    def kill(self, targets: Iterable[int]) -> None:
        """Kill the targets and all processes held together with them."""
        ...

    def send(self, number: signal.Signals, targets: Iterable[int]) -> None:
        """Send a signal; targets that are gone or not ours are skipped."""
        ...


class ChangeReports(Protocol):
    """Source of directory changes reported by the system."""

    room: int
    """Number of directories that may be added."""
    devices: frozenset[int]
    """Devices of the file systems in which every change is reported."""

    def add(self, place: str | int) -> int:
        """Start reporting changes of a directory; return the number that identifies them, negative on failure."""
        ...

    def take(self) -> list[tuple[int, str, str]] | None:
        """Return the changes since the last call; None if they are unknown."""
        ...

    def close(self) -> object:
        """End all reports."""
        ...


class SystemConstants(Protocol):
    """Constants of an operating system; a protocol, because pyright requires a final class to assign all of them."""

    BASE_FLAGS: int
    """Flags to open a file in binary mode, not inherited by children."""
    NOFOLLOW: int
    """Flag to fail if the path is a symlink; 0 where only `open_at` can do that."""
    NONBLOCK: int
    """Flags against waiting for the other end of a FIFO and acquiring a terminal."""
    DIRECTORY: int
    """Flag to fail unless the path is a directory, for `open_at` and `openat_nofollow`."""
    KILL_SIGNAL: signal.Signals
    """Signal that ends a process and cannot be ignored."""
    TERMINATION_SIGNALS: tuple[signal.Signals, ...]
    """Signals that request a program to exit."""
    ULIMIT_SHELL: str
    """Shell whose `ulimit` limits a program; empty if there is none."""
    DEFAULT_EDITOR: str
    """Default editor."""
    HAS_TERMINAL_UI: bool
    """True if the terminal UI is supported."""
    HAS_UNIX_SOCKETS: bool
    """True if the service can listen on a socket path that other users cannot reach."""
    NO_SANDBOX_REASON: str
    """Reason why this system has no sandbox; empty if a program provides one."""
    NO_SHELL_HINT: str
    """Advice for the user if `find_shell` finds none; empty if it always finds one."""


class Platform(SystemConstants, ABC):
    """An operating system: one object, `yarrow.platform.system`, which all other packages use."""

    # ---- names of files ----

    @abstractmethod
    def normcase(self, path: str) -> str:
        """Return a path in its form for comparison."""

    @abstractmethod
    def is_within(self, path: PurePath, place: PurePath) -> bool:
        """Return whether a path is, or is below, another one, by the name rules of the system."""

    @abstractmethod
    def explain_invalid_name(self, path: str) -> str:
        """Return why a name in a path is not the name of a file; empty if all are."""

    @abstractmethod
    def to_posix(self, path: str) -> str:
        """Return a normal path with slashes as separators."""

    # ---- open directories and their content ----

    @abstractmethod
    def open_directory(self, path: Path | str, *, follow: bool = True) -> int:
        """Return a descriptor of a directory for the functions named `*_at`; rejects a symlink unless `follow` is true.

        Raises `OSError`.
        """

    @abstractmethod
    def open_at(self, directory: int, name: str, flags: int, *, mode: int = 0o777) -> int:
        """Open a name in an open directory; it must not be a symlink. Raises `OSError`."""

    @abstractmethod
    def openat_nofollow(self, directory: int, names: tuple[str, ...], flags: int) -> int:
        """Open a path below an open directory, given by its names, none of which may be a symlink.

        Raises `OSError`.
        """

    @abstractmethod
    def mkdir_at(self, directory: int, name: str) -> None:
        """Create a directory in an open one. Raises `OSError`."""

    @abstractmethod
    def stat_at(self, directory: int, name: str) -> os.stat_result:
        """Return the status of a name in an open directory without following a symlink. Raises `OSError`."""

    @abstractmethod
    def can_write_at(self, directory: int, name: str) -> bool:
        """Return whether a file in an open directory is writable or, for `.`, whether files can be created in it."""

    @abstractmethod
    def unlink_at(self, directory: int, name: str) -> None:
        """Remove a file in an open directory. Raises `OSError`."""

    @abstractmethod
    def replace_at(self, directory: int, name: str, new: str) -> None:
        """Rename a file in an open directory, replacing a file with the new name. Raises `OSError`."""

    @abstractmethod
    def link_at(self, directory: int, name: str, new: str) -> None:
        """Add a hard link to a file in an open directory. Raises `OSError`, also if the new name exists."""

    @abstractmethod
    def scandir_at(self, directory: int) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        """Return an iterator over the entries of an open directory, to be closed. Raises `OSError`."""

    @abstractmethod
    def listdir_at(self, directory: int) -> list[str]:
        """Return the names in an open directory. Raises `OSError`."""

    @abstractmethod
    def open_directory_changes(self) -> ChangeReports | None:
        """Return an object that reports changes in directories; None if unsupported."""

    # ---- files: locks, durability, owners ----

    @abstractmethod
    def try_lock(self, descriptor: int) -> None:
        """Lock an open file without waiting. Raises `BlockingIOError` if another process holds it, else OSError."""

    @abstractmethod
    def try_lock_directory(self, path: Path) -> int:
        """Lock a directory without waiting, and return the descriptor that holds the lock. Raises as `try_lock`."""

    @abstractmethod
    def lock_directory(self, path: Path) -> AbstractContextManager[int]:
        """Wait for the exclusive lock of a directory; yield a descriptor for `sync`. Raises `OSError`."""

    @abstractmethod
    def sync(self, descriptor: int, *, data_only: bool = False) -> None:
        """Return once an open file, or the entries of a directory, would survive a power failure. Raises `OSError`.

        `data_only` skips metadata that is not needed to read the data.
        """

    @abstractmethod
    def raise_open_file_limit(self, most: int) -> int:
        """Raise this process's limit of open files to `most`, or as far as the system allows, and return the limit.

        It is never lowered.
        """

    @abstractmethod
    def get_user_id(self) -> int:
        """Return the user id of this process, which owns its files."""

    @abstractmethod
    def get_account_home(self, uid: int | None) -> str:
        """Return the home in the account database for a user id, None for the current user; empty if there is none."""

    @abstractmethod
    def is_root(self) -> bool:
        """Return whether this process is root, so that no permission is denied to it."""

    @abstractmethod
    def is_owned(self, status: os.stat_result) -> bool:
        """Return whether the user of this process owns a file."""

    @abstractmethod
    def is_private_mode(self, mode: int) -> bool:
        """Return whether a file mode grants access to the owner only."""

    @abstractmethod
    def set_mode(self, descriptor: int, mode: int) -> None:
        """Set the mode of an open file. Raises `OSError`."""

    @abstractmethod
    def copy_owner(self, descriptor: int, like: os.stat_result) -> None:
        """Set the owner and group of an open file to those of another. Raises `PermissionError` if not permitted."""

    @abstractmethod
    def copy_attributes(self, source: int, target: int) -> None:
        """Copy the extended attributes of an open file, such as access lists, to another. Raises `OSError`."""

    # ---- processes ----

    @abstractmethod
    def find_shell(self, environment: Mapping[str, str]) -> str:
        """Return the shell that runs a command after `-c`; empty if there is none."""

    @abstractmethod
    def create_job(self, leader: int) -> ProcessTree | None:
        """Return a job that contains a child and everything it starts; None on systems with process groups."""

    @abstractmethod
    def kill_group(self, leader: int) -> None:
        """Kill a child that leads its own session, with all processes in its group.

        Raises `ProcessLookupError` if none exists.
        """

    @abstractmethod
    def open_pidfd(self, pid: int) -> int:
        """Return a descriptor that becomes readable when a child exits. Raises `OSError` if unsupported."""

    @abstractmethod
    def exit_at_stdin_end(self) -> None:
        """Kill this process, which must lead its group, as soon as standard input ends."""

    @abstractmethod
    def scope_abstract_sockets(self) -> bool:
        """Deny the calling thread and its children abstract sockets of other processes; return whether that worked."""

    # ---- pipes, terminals and sockets ----

    @abstractmethod
    def open_pipe(self) -> tuple[int, int]:
        """Return a pipe: its read end, which `read_nonblocking` reads without waiting, and its write end."""

    @abstractmethod
    def set_nonblocking(self, descriptor: int) -> None:
        """Make writes to one of our pipes non-blocking."""

    @abstractmethod
    def read_nonblocking(self, descriptor: int, most: int) -> bytes:
        """Read from a pipe of `open_pipe`; empty at its end. Raises `BlockingIOError` if no data is available."""

    @abstractmethod
    def wait_readable(self, descriptor: int, seconds: float | None) -> bool:
        """Wait until a descriptor is readable, for `seconds` at most; return whether it is. Raises `OSError`."""

    @abstractmethod
    def watch_readable(self, loop: "AbstractEventLoop", descriptor: int, arrived: Callable[[], object]) -> None:
        """Call back in the event loop whenever a descriptor is readable."""

    @abstractmethod
    def unwatch_readable(self, loop: "AbstractEventLoop", descriptor: int) -> None:
        """Stop the calls of `watch_readable`."""

    @abstractmethod
    def can_detect_peer_close(self, descriptor: int) -> bool:
        """Return whether `watch_readable` reports when the reader of our output closes it."""

    @abstractmethod
    def is_peer_closed(self, descriptor: int) -> bool:
        """Return whether the other end of a pipe or terminal is closed."""

    @abstractmethod
    def prepare_terminal(self) -> None:
        """Make the terminal interpret output as UTF-8 with escape sequences."""

    @abstractmethod
    def flush_input(self, descriptor: int) -> None:
        """Discard unread terminal input."""

    @abstractmethod
    def set_cbreak_mode(self, descriptor: int) -> AbstractContextManager[bool]:
        """Read a terminal key by key without echo, including unread input; yield whether this is supported."""

    @abstractmethod
    def is_in_background(self, descriptor: int) -> bool:
        """Return whether a terminal belongs to another job, so that reading from it would stop this process."""

    @abstractmethod
    def is_socket_listening(self, path: Path) -> bool:
        """Return whether a process listens on a unix socket."""

    @abstractmethod
    def list_connected_addresses(self, port: int) -> list[str]:
        """Return the remote address of each connection to a local TCP port; empty if unknown."""
