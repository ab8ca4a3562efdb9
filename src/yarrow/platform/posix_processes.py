"""Process operations shared by Linux and macOS: process groups, signals, pipes, terminals, sockets."""

import os
import signal
import sys

if sys.platform == "win32":
    raise ImportError("yarrow.platform.posix_processes is not for Windows")

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

KILL_SIGNAL = signal.SIGKILL
"""Signal that ends a process and cannot be ignored."""
TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that request a program to exit."""
SHELL_PATHS = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")
"""Paths checked for bash before PATH, so that a directory on PATH cannot override it."""
ULIMIT_SHELL = "/bin/sh"
"""Shell whose `ulimit` limits a program; empty if there is none."""
HAS_TERMINAL_UI = True
"""True if the terminal UI is supported."""
HAS_UNIX_SOCKETS = True
"""True if the service can listen on a socket path that other users cannot reach."""
NO_SHELL_HINT = ""
"""Advice for the user if `find_shell` finds none; unused here because it always does."""
DEFAULT_EDITOR = "vi"
"""Default editor."""


def open_pipe() -> tuple[int, int]:
    """Return a pipe: its non-blocking read end and its write end."""
    source, sink = os.pipe()
    os.set_blocking(source, False)
    return source, sink


def set_nonblocking(descriptor: int) -> None:
    """Make writes to one of our pipes non-blocking."""
    os.set_blocking(descriptor, False)


def read_nonblocking(descriptor: int, most: int) -> bytes:
    """Read from a pipe of `open_pipe`; empty at its end. Raises `BlockingIOError` if no data is available."""
    return os.read(descriptor, most)


def watch_readable(loop: "AbstractEventLoop", descriptor: int, arrived: Callable[[], object]) -> None:
    """Call back in the event loop whenever a descriptor is readable."""
    loop.add_reader(descriptor, arrived)


def unwatch_readable(loop: "AbstractEventLoop", descriptor: int) -> None:
    """Stop the calls of `watch_readable`."""
    loop.remove_reader(descriptor)


def kill_group(leader: int) -> None:
    """Kill a child that leads its own session, with all processes in its group.

    Raises `ProcessLookupError` if none exists.
    """
    os.killpg(leader, signal.SIGKILL)


def exit_at_stdin_end() -> None:
    """Kill this process, which must lead its group, as soon as standard input ends.

    A thread cannot do this, because a library may hold the GIL for long. A second process, forked while this one has a
    single thread and little memory, waits for the end and kills the group, including itself.
    """
    if os.fork():
        return
    try:
        # A process that waits for the end of our output must not wait for this one.
        os.close(1)
        os.close(2)
        while os.read(0, 4096):
            pass
    finally:
        os.killpg(0, signal.SIGKILL)


def find_shell(environment: Mapping[str, str]) -> str:
    """Return the shell that runs a command after `-c`: bash, or sh if there is none."""
    for path in SHELL_PATHS:
        if os.access(path, os.X_OK):
            return path
    from yarrow.platform.search_path import find_program

    return find_program("bash", environment) or "/bin/sh"


# ---- terminals and pipes of other processes ----


def prepare_terminal() -> None:
    """Make the terminal interpret output as UTF-8 with escape sequences."""


def flush_input(descriptor: int) -> None:
    """Discard unread terminal input."""
    import termios

    termios.tcflush(descriptor, termios.TCIFLUSH)


@contextmanager
def set_cbreak_mode(descriptor: int) -> Generator[bool]:
    """Read a terminal key by key without echo, including unread input; yield whether this is supported."""
    import termios

    before = termios.tcgetattr(descriptor)
    keys = list(before)
    # Ctrl+C still interrupts.
    keys[3] &= ~(termios.ICANON | termios.ECHO | termios.IEXTEN)
    termios.tcsetattr(descriptor, termios.TCSANOW, keys)
    try:
        yield True
    finally:
        with suppress(termios.error):  # a terminal that was closed
            termios.tcsetattr(descriptor, termios.TCSANOW, before)


def is_in_background(descriptor: int) -> bool:
    """Return whether a terminal belongs to another job, so that reading from it would stop this process."""
    try:
        return os.tcgetpgrp(descriptor) != os.getpgrp()
    except OSError:  # not our controlling terminal: it has no jobs
        return False


def wait_readable(descriptor: int, seconds: float | None) -> bool:
    """Wait until a descriptor is readable, for `seconds` at most; return whether it is. Raises `OSError`."""
    import select

    return bool(select.select([descriptor], [], [], seconds)[0])


def can_detect_peer_close(descriptor: int) -> bool:
    """Return whether `watch_readable` reports when the reader of our output closes it."""
    import stat

    return stat.S_ISFIFO(os.fstat(descriptor).st_mode)


def is_peer_closed(descriptor: int) -> bool:
    """Return whether the other end of a pipe or terminal is closed."""
    import select

    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))


def is_socket_listening(path: Path) -> bool:
    """Return whether a process listens on a unix socket."""
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(os.fspath(path)) == 0
