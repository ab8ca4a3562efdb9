"""Windows: jobs in place of process groups, polling in place of events, no unix sockets."""

import errno
import os
import signal
import sys

if sys.platform != "win32":
    raise ImportError("yarrow.platform.windows is for Windows")

import _winapi
import msvcrt
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, final

from yarrow.platform.windows_files import WindowsFiles
from yarrow.platform.windows_paths import build_tree_kill_command, find_bash

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Handle

    from yarrow.platform.base import ProcessTree
    from yarrow.platform.windows_api import Job

LOOK_SECONDS = 0.02
"""Polling interval in seconds, because nothing reports that a descriptor is readable."""
KILL_SECONDS = 10.0
"""Timeout in seconds for killing a process with its descendants."""


@final
class Windows(WindowsFiles):
    """Windows, without WSL, which is Linux."""

    KILL_SIGNAL = signal.SIGTERM
    """Signal that ends a process and cannot be ignored: SIGTERM on this system."""
    TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGBREAK)
    ULIMIT_SHELL = ""
    DEFAULT_EDITOR = "notepad"
    HAS_TERMINAL_UI = False
    HAS_UNIX_SOCKETS = False
    NO_SANDBOX_REASON = "Yarrow has no sandbox on Windows; use WSL for one"
    NO_SHELL_HINT = "bash not found: install Git for Windows, which includes it, or run Yarrow in WSL"

    def __init__(self) -> None:
        self._watched: dict[int, Handle] = {}

    # ---- processes ----

    def find_shell(self, environment: Mapping[str, str]) -> str:
        """Return the shell that runs a command after `-c`; empty if there is no bash that uses Windows paths."""
        return find_bash(environment, lambda path: Path(path).is_file())

    def create_job(self, leader: int) -> "ProcessTree":
        from yarrow.platform.windows_api import Job

        try:
            return _Family(Job(leader))
        except OSError:  # it has exited
            return _Family(None)

    def kill_group(self, leader: int) -> None:
        """Kill a child and all its descendants. Raises `ProcessLookupError` if it does not exist."""
        import subprocess

        command = build_tree_kill_command(os.environ, leader)
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=KILL_SECONDS, check=True)
            return
        try:
            os.kill(leader, self.KILL_SIGNAL)
        except OSError:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from None

    def open_pidfd(self, pid: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    def exit_at_stdin_end(self) -> None:
        """End this process once standard input ends, as soon as the GIL is free."""
        from threading import Thread

        def wait() -> None:
            while os.read(0, 4096):
                pass
            os._exit(1)

        Thread(target=wait, name="yarrow-end", daemon=True).start()

    def scope_abstract_sockets(self) -> bool:
        return False

    # ---- pipes, terminals and sockets ----

    def open_pipe(self) -> tuple[int, int]:
        return os.pipe()

    def set_nonblocking(self, descriptor: int) -> None:
        """Do nothing: only one byte per signal is written to our pipes, which have room for it."""

    def read_nonblocking(self, descriptor: int, most: int) -> bytes:
        if not _has_come(descriptor):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return os.read(descriptor, most)

    def wait_readable(self, descriptor: int, seconds: float | None) -> bool:
        last = None if seconds is None else time.monotonic() + seconds
        while not _has_come(descriptor):
            if last is not None and time.monotonic() >= last:
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def watch_readable(self, loop: "AbstractEventLoop", descriptor: int, arrived: Callable[[], object]) -> None:
        self.unwatch_readable(loop, descriptor)

        def look() -> None:
            self._watched[descriptor] = loop.call_later(LOOK_SECONDS, look)
            if _has_come(descriptor):
                arrived()

        self._watched[descriptor] = loop.call_soon(look)

    def unwatch_readable(self, loop: "AbstractEventLoop", descriptor: int) -> None:
        if (looking := self._watched.pop(descriptor, None)) is not None:
            looking.cancel()

    def can_detect_peer_close(self, descriptor: int) -> bool:
        return False  # the next write fails

    def is_peer_closed(self, descriptor: int) -> bool:
        return False

    def prepare_terminal(self) -> None:
        if os.isatty(1) or os.isatty(2):
            from yarrow.platform.windows_api import speak_utf8

            speak_utf8()

    def flush_input(self, descriptor: int) -> None:
        while msvcrt.kbhit():
            msvcrt.getwch()

    @contextmanager
    def set_cbreak_mode(self, descriptor: int) -> Generator[bool]:
        yield False  # a console returns lines

    def is_in_background(self, descriptor: int) -> bool:
        return False

    def is_socket_listening(self, path: Path) -> bool:
        return False

    def list_connected_addresses(self, port: int) -> list[str]:
        return []


class _Family:
    """Child process with everything it starts, in a job."""

    def __init__(self, job: "Job | None") -> None:
        self._job = job

    def alive(self) -> list[int]:
        """Return the child's id while any of its processes is running, else nothing."""
        return [] if self._job is None else self._job.alive()

    def kill(self, targets: Iterable[int]) -> None:
        """Kill all processes, whatever the targets: a job ends as a whole."""
        if self._job is not None:
            self._job.end()

    def send(self, number: signal.Signals, targets: Iterable[int]) -> None:
        """Kill all processes if there is any target: processes cannot be asked to exit here."""
        if any(True for _ in targets):
            self.kill(())


def _has_come(descriptor: int) -> bool:
    """Return whether a read would not block; console input counts from the first key of a line."""
    if os.isatty(descriptor):
        return msvcrt.kbhit()
    try:
        return _winapi.PeekNamedPipe(msvcrt.get_osfhandle(descriptor), 0)[-2] > 0
    except OSError:  # at its end, or a file, which never blocks
        return True
