"""What Windows does with programs: jobs in place of process groups, looks at pipes in place of events, no sockets."""

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
"""Ends a process that cannot refuse it; here that is what this signal does."""
TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGBREAK)
"""What tells a program to end."""
SHELL_PATHS = ()
"""Where bash is looked for before PATH; here that depends on the machine."""
ULIMIT_SHELL = ""
"""The shell whose `ulimit` bounds a program; empty where there is none."""
HAS_TERMINAL_UI = False
"""Whether the terminal UI runs here."""
HAS_UNIX_SOCKETS = False
"""Whether the service can listen on a path that other users cannot reach."""
DEFAULT_EDITOR = "notepad"
"""The editor where none is named."""
LOOK_SECONDS = 0.02
"""How far apart it is looked whether something came; there is nothing that would tell."""
KILL_SECONDS = 10.0
"""How long it may take to kill the processes that one started."""
_watched: "dict[int, Handle]" = {}


def open_pipe() -> tuple[int, int]:
    """Return a pipe: where to read, which never waits by `read_nonblocking`, and where to write."""
    return os.pipe()


def set_nonblocking(descriptor: int) -> None:
    """Do nothing: what is written to a pipe of ours is a byte for each signal, and has room."""


def read_nonblocking(descriptor: int, most: int) -> bytes:
    """Return what is in a pipe of `open_pipe`, nothing at its end. Raises `BlockingIOError` where it is empty."""
    if not _has_come(descriptor):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return os.read(descriptor, most)


def watch_readable(loop: "AbstractEventLoop", descriptor: int, arrived: Callable[[], object]) -> None:
    """Call back, in the event loop, whenever a descriptor can be read."""
    unwatch_readable(loop, descriptor)

    def look() -> None:
        _watched[descriptor] = loop.call_later(LOOK_SECONDS, look)
        if _has_come(descriptor):
            arrived()

    _watched[descriptor] = loop.call_soon(look)


def unwatch_readable(loop: "AbstractEventLoop", descriptor: int) -> None:
    """Call back no more."""
    if (looking := _watched.pop(descriptor, None)) is not None:
        looking.cancel()


def open_pidfd(pid: int) -> int:
    """Return a descriptor that can be read when a child has ended. Raises `OSError` where there is no such thing."""
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def scope_abstract_sockets() -> bool:
    """Keep the calling thread, and what it starts, from abstract sockets of others; return whether the system can."""
    return False


class _Family:
    """A child and all that it starts, in a job."""

    def __init__(self, job: "Job | None") -> None:
        self._job = job

    def alive(self) -> list[int]:
        """Return the child as long as anything of it runs."""
        return [] if self._job is None else self._job.alive()

    def kill(self, targets: Iterable[int]) -> None:  # noqa: ARG002 (a job ends as a whole)
        """Kill all of it."""
        if self._job is not None:
            self._job.end()

    def send(self, number: signal.Signals, targets: Iterable[int]) -> None:  # noqa: ARG002 (it can only be killed)
        """Kill all of it, if any is meant: nothing here can be asked to end."""
        if any(True for _ in targets):
            self.kill(())


def create_job(leader: int) -> _Family:
    """Return what holds a child and all that it starts together; what it started before is not held."""
    from yarrow.platform.windows_api import Job

    try:
        return _Family(Job(leader))
    except OSError:  # it has ended
        return _Family(None)


def kill_group(leader: int) -> None:
    """Kill a child with all that it started, and that those started. Raises `ProcessLookupError` when it is gone."""
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
    """See to it that the end of standard input ends this process, as soon as the interpreter is free."""
    from threading import Thread

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os._exit(1)

    Thread(target=wait, name="yarrow-end", daemon=True).start()


def find_shell(environment: Mapping[str, str]) -> str:
    """Return the shell that runs a command after `-c`; empty where there is no bash that sees the files of Windows."""
    return find_bash(environment, lambda path: Path(path).is_file())


def prepare_terminal() -> None:
    """See to it that a terminal shows what is written as UTF-8, with its escape sequences."""
    if os.isatty(1) or os.isatty(2):
        from yarrow.platform.windows_api import speak_utf8

        speak_utf8()


def flush_input(descriptor: int) -> None:
    """Drop what was typed at a terminal and not read yet."""
    while msvcrt.kbhit():
        msvcrt.getwch()


@contextmanager
def set_cbreak_mode(descriptor: int) -> Generator[bool]:
    """Read a terminal key by key and unechoed; yield whether that is so here: a console gives lines."""
    yield False


def is_in_background(descriptor: int) -> bool:
    """Whether a terminal belongs to another job, so that reading from it would stop this one."""
    return False


def wait_readable(descriptor: int, seconds: float | None) -> bool:
    """Wait until a descriptor can be read, for so long at most, and return whether it can. Raises `OSError`."""
    last = None if seconds is None else time.monotonic() + seconds
    while not _has_come(descriptor):
        if last is not None and time.monotonic() >= last:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def can_detect_peer_close(descriptor: int) -> bool:
    """Whether `watch_readable` calls back when the reader of what we write goes away; the next write tells it here."""
    return False


def is_peer_closed(descriptor: int) -> bool:
    """Whether nobody has the other end of a pipe, or of a terminal, any more."""
    return False


def is_socket_listening(path: Path) -> bool:
    """Whether somebody listens on a unix socket."""
    return False


def _has_come(descriptor: int) -> bool:
    """Whether reading would not wait; a line that is being typed at a console has come with its first key."""
    if os.isatty(descriptor):
        return msvcrt.kbhit()
    try:
        return _winapi.PeekNamedPipe(msvcrt.get_osfhandle(descriptor), 0)[-2] > 0
    except OSError:  # its end, or a file, which never waits
        return True
