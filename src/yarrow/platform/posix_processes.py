"""What Linux and macOS do alike with programs: process groups, signals, pipes, terminals, sockets."""

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
"""Ends a process that cannot refuse it."""
TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What tells a program to end."""
SHELL_PATHS = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")
"""Where bash is looked for before PATH, so that a directory on PATH cannot put another in its place."""
ULIMIT_SHELL = "/bin/sh"
"""The shell whose `ulimit` bounds a program; empty where there is none."""
HAS_TERMINAL_UI = True
"""Whether the terminal UI runs here."""
HAS_UNIX_SOCKETS = True
"""Whether the service can listen on a path that other users cannot reach."""
NO_SHELL_HINT = ""
"""What to do where `find_shell` finds none; it always does here."""
DEFAULT_EDITOR = "vi"
"""The editor where none is named."""


def open_pipe() -> tuple[int, int]:
    """Return a pipe: where to read, which never waits, and where to write."""
    source, sink = os.pipe()
    os.set_blocking(source, False)
    return source, sink


def set_nonblocking(descriptor: int) -> None:
    """See to it that writing to a pipe of ours never waits."""
    os.set_blocking(descriptor, False)


def read_nonblocking(descriptor: int, most: int) -> bytes:
    """Return what is in a pipe of `open_pipe`, nothing at its end. Raises `BlockingIOError` where it is empty."""
    return os.read(descriptor, most)


def watch_readable(loop: "AbstractEventLoop", descriptor: int, arrived: Callable[[], object]) -> None:
    """Call back, in the event loop, whenever a descriptor can be read."""
    loop.add_reader(descriptor, arrived)


def unwatch_readable(loop: "AbstractEventLoop", descriptor: int) -> None:
    """Call back no more."""
    loop.remove_reader(descriptor)


def kill_group(leader: int) -> None:
    """Kill a child that was started in a session of its own, with all that it started there.

    Raises `ProcessLookupError` when it is gone.
    """
    os.killpg(leader, signal.SIGKILL)


def exit_at_stdin_end() -> None:
    """See to it that the end of standard input ends this process, which leads its group, at any moment.

    A thread cannot: a library may hold the interpreter's lock for long. So a second process, forked while this one has
    a single thread and little memory, waits and then kills the group, itself included.
    """
    if os.fork():
        return
    try:
        # Who waits for the end of our output must not wait for this process.
        os.close(1)
        os.close(2)
        while os.read(0, 4096):
            pass
    finally:
        os.killpg(0, signal.SIGKILL)


def find_shell(environment: Mapping[str, str]) -> str:
    """Return the shell that runs a command after `-c`: bash, or sh where there is none."""
    for path in SHELL_PATHS:
        if os.access(path, os.X_OK):
            return path
    from yarrow.platform.search_path import find_program

    return find_program("bash", environment) or "/bin/sh"


# ---- terminals and pipes of others ----


def prepare_terminal() -> None:
    """See to it that a terminal shows what is written as UTF-8, with its escape sequences."""


def flush_input(descriptor: int) -> None:
    """Drop what was typed at a terminal and not read yet."""
    import termios

    termios.tcflush(descriptor, termios.TCIFLUSH)


@contextmanager
def set_cbreak_mode(descriptor: int) -> Generator[bool]:
    """Read a terminal key by key and unechoed, also what was typed and not read yet; yield whether that is so here."""
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
    """Whether a terminal belongs to another job, so that reading from it would stop this one."""
    try:
        return os.tcgetpgrp(descriptor) != os.getpgrp()
    except OSError:  # not the terminal that controls us: there are no jobs on it
        return False


def wait_readable(descriptor: int, seconds: float | None) -> bool:
    """Wait until a descriptor can be read, for so long at most, and return whether it can. Raises `OSError`."""
    import select

    return bool(select.select([descriptor], [], [], seconds)[0])


def can_detect_peer_close(descriptor: int) -> bool:
    """Whether `watch_readable` calls back when the reader of what we write goes away."""
    import stat

    return stat.S_ISFIFO(os.fstat(descriptor).st_mode)


def is_peer_closed(descriptor: int) -> bool:
    """Whether nobody has the other end of a pipe, or of a terminal, any more."""
    import select

    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))


def is_socket_listening(path: Path) -> bool:
    """Whether somebody listens on a unix socket."""
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(os.fspath(path)) == 0
