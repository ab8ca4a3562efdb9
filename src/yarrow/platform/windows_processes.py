"""Process operations of Windows: jobs in place of process groups, polling in place of events, no unix sockets."""

import errno
import os
import signal
import sys

if sys.platform != "win32":
    raise ImportError("yarrow.platform.windows_processes is for Windows")

import _winapi
import msvcrt
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from yarrow.platform.windows_paths import build_tree_kill_command, find_bash

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Handle

    from yarrow.platform.windows_api import Job

KILL_SIGNAL = signal.SIGTERM
"""Signal that ends a process and cannot be ignored; on this system SIGTERM does."""
TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGBREAK)
"""Signals that request a program to exit."""
SHELL_PATHS = ()
"""Paths checked for bash before PATH; none here, because they depend on the machine."""
ULIMIT_SHELL = ""
"""Shell whose `ulimit` limits a program; empty if there is none."""
HAS_TERMINAL_UI = False
"""True if the terminal UI is supported."""
HAS_UNIX_SOCKETS = False
"""True if the service can listen on a socket path that other users cannot reach."""
DEFAULT_EDITOR = "notepad"
"""Default editor."""
LOOK_SECONDS = 0.02
"""Polling interval in seconds, because nothing reports that a descriptor is readable."""
KILL_SECONDS = 10.0
"""Timeout in seconds for killing a process with its descendants."""
_watched: "dict[int, Handle]" = {}


def open_pipe() -> tuple[int, int]:
    """Return a pipe: its read end, which `read_nonblocking` reads without waiting, and its write end."""
    return os.pipe()


def set_nonblocking(descriptor: int) -> None:
    """Do nothing: only one byte per signal is written to our pipes, which have room for it."""


def read_nonblocking(descriptor: int, most: int) -> bytes:
    """Read from a pipe of `open_pipe`; empty at its end. Raises `BlockingIOError` if no data is available."""
    if not _has_come(descriptor):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return os.read(descriptor, most)


def watch_readable(loop: "AbstractEventLoop", descriptor: int, arrived: Callable[[], object]) -> None:
    """Call back in the event loop whenever a descriptor is readable."""
    unwatch_readable(loop, descriptor)

    def look() -> None:
        _watched[descriptor] = loop.call_later(LOOK_SECONDS, look)
        if _has_come(descriptor):
            arrived()

    _watched[descriptor] = loop.call_soon(look)


def unwatch_readable(loop: "AbstractEventLoop", descriptor: int) -> None:
    """Stop the calls of `watch_readable`."""
    if (looking := _watched.pop(descriptor, None)) is not None:
        looking.cancel()


def open_pidfd(pid: int) -> int:
    """Return a descriptor that becomes readable when a child exits. Raises `OSError` if unsupported."""
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def scope_abstract_sockets() -> bool:
    """Deny the calling thread and its children abstract sockets of other processes; return whether that worked."""
    return False


class _Family:
    """Child process with everything it starts, in a job."""

    def __init__(self, job: "Job | None") -> None:
        self._job = job

    def alive(self) -> list[int]:
        """Return the child's id while any of its processes is running, else nothing."""
        return [] if self._job is None else self._job.alive()

    def kill(self, targets: Iterable[int]) -> None:  # noqa: ARG002 (a job ends as a whole)
        """Kill all processes."""
        if self._job is not None:
            self._job.end()

    def send(self, number: signal.Signals, targets: Iterable[int]) -> None:  # noqa: ARG002 (a job can only be killed)
        """Kill all processes if there is any target: processes cannot be asked to exit here."""
        if any(True for _ in targets):
            self.kill(())


def create_job(leader: int) -> _Family:
    """Return a job that contains a child and everything it starts from now on."""
    from yarrow.platform.windows_api import Job

    try:
        return _Family(Job(leader))
    except OSError:  # it has exited
        return _Family(None)


def kill_group(leader: int) -> None:
    """Kill a child and all its descendants. Raises `ProcessLookupError` if it does not exist."""
    import subprocess

    command = build_tree_kill_command(os.environ, leader)
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=KILL_SECONDS, check=True)
        return
    try:
        os.kill(leader, KILL_SIGNAL)
    except OSError:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from None


def exit_at_stdin_end() -> None:
    """End this process once standard input ends, as soon as the GIL is free."""
    from threading import Thread

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os._exit(1)

    Thread(target=wait, name="yarrow-end", daemon=True).start()


def find_shell(environment: Mapping[str, str]) -> str:
    """Return the shell that runs a command after `-c`; empty if there is no bash that uses Windows paths."""
    return find_bash(environment, lambda path: Path(path).is_file())


def prepare_terminal() -> None:
    """Make the terminal interpret output as UTF-8 with escape sequences."""
    if os.isatty(1) or os.isatty(2):
        from yarrow.platform.windows_api import speak_utf8

        speak_utf8()


def flush_input(descriptor: int) -> None:
    """Discard unread terminal input."""
    while msvcrt.kbhit():
        msvcrt.getwch()


@contextmanager
def set_cbreak_mode(descriptor: int) -> Generator[bool]:
    """Read a terminal key by key without echo; yield whether this is supported: never, as a console returns lines."""
    yield False


def is_in_background(descriptor: int) -> bool:
    """Return whether a terminal belongs to another job, so that reading from it would stop this process."""
    return False


def wait_readable(descriptor: int, seconds: float | None) -> bool:
    """Wait until a descriptor is readable, for `seconds` at most; return whether it is. Raises `OSError`."""
    last = None if seconds is None else time.monotonic() + seconds
    while not _has_come(descriptor):
        if last is not None and time.monotonic() >= last:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def can_detect_peer_close(descriptor: int) -> bool:
    """Return whether `watch_readable` reports when the reader of our output closes it; here the next write fails."""
    return False


def is_peer_closed(descriptor: int) -> bool:
    """Return whether the other end of a pipe or terminal is closed."""
    return False


def is_socket_listening(path: Path) -> bool:
    """Return whether a process listens on a unix socket."""
    return False


def _has_come(descriptor: int) -> bool:
    """Return whether a read would not block; console input counts from the first key of a line."""
    if os.isatty(descriptor):
        return msvcrt.kbhit()
    try:
        return _winapi.PeekNamedPipe(msvcrt.get_osfhandle(descriptor), 0)[-2] > 0
    except OSError:  # at its end, or a file, which never blocks
        return True
