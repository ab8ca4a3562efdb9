"""Execution of one command with streamed output; no process of it survives, however it ends.

The command gets its own session and process group, an empty standard input and no terminal; standard output and
standard error share one pipe. It is started by exec in a fresh process, never with Python code between fork and exec.
"""

import asyncio
import errno
import math
import os
import signal
import socket
import subprocess
from collections.abc import AsyncGenerator
from concurrent.futures import Executor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from msgspec import Struct

from yarrow.platform import system
from yarrow.policy.process_tree import MARKER, has_own_proc, open_process_tree

READ_BYTES = 65_536
"""Maximum bytes per read; a slow reader makes the command wait."""
OUTPUT_PAUSE_SECONDS = 0.05
"""Seconds without output after which one pause is reported."""
DRAIN_IDLE_SECONDS = 0.1
"""Seconds of silence after which an ended process's pipe is abandoned if other processes still hold it."""
MAX_DRAIN_SECONDS = 0.5
"""Maximum seconds an ended process's pipe is read in total."""
GRACE_SECONDS = 2.0
"""Seconds between SIGTERM and SIGKILL."""
KILL_SECONDS = 2.0
"""Seconds to wait after SIGKILL for processes that do not die, such as one in a hanging system call."""
POLL_SECONDS = 0.01
MAX_FINAL_OUTPUT_BYTES = 1_048_576
"""Maximum bytes read of output written while the command was being ended."""


class Command(Struct, frozen=True):
    """A program to run."""

    argv: tuple[str, ...]
    cwd: Path
    environment: dict[str, str]
    timeout: float
    """Timeout in seconds."""
    has_launcher: bool = False
    """True if the process only launches the command and kills it by exiting; it is signaled last."""
    descriptors: tuple[int, ...] = ()
    """Open descriptors that the process inherits under the same numbers."""
    awaits_permission: bool = False
    """True if the process writes a byte to its standard input (a socket) and awaits a line in reply before it runs."""
    starter: Executor | None = None
    """Executor whose thread starts the process, which thus runs in its control group; None for the current thread."""


class Exit(Struct, frozen=True):
    """Result of a command: its exit code, or the negated number of the signal that ended it."""

    code: int
    timed_out: bool = False
    left_processes: bool = False
    """True if other processes were still running when the command ended, and were ended too."""


class LauncherError(OSError):
    """The launcher of a command ended before it asked for permission, so the command did not run."""


async def run(command: Command) -> AsyncGenerator[bytes | Exit]:
    """Run a command: yield output as it arrives, `b""` once per pause, and finally an `Exit`.

    Ends when the process itself has ended. Processes that it leaves behind are sent SIGTERM and, `GRACE_SECONDS` later,
    SIGKILL; so are all its processes on timeout, on cancellation, and when the generator is closed. Close the generator
    (`contextlib.aclosing`), or this happens only at garbage collection. Raises OSError or ValueError if the command
    cannot be started, `LauncherError` with the launcher's output if that fails.
    """
    child = _Child(command)
    launching = b""
    try:
        try:
            quiet_at = math.inf
            while (piece := await child.read(quiet_at)) is not None:
                if child.is_launching:
                    launching += piece
                else:
                    yield piece
                quiet_at = child.now() + OUTPUT_PAUSE_SECONDS if piece else math.inf
            timed_out = child.is_running()
            left = not timed_out and await child.has_left_processes()
        finally:
            await child.end()
        if child.is_launching and not timed_out:
            raise LauncherError(errno.EAGAIN, _last_line(launching + b"".join(child.final_output())))
        for piece in child.final_output():
            yield piece
        yield Exit(child.exit_code(), timed_out, left)
    finally:
        child.close()


def _last_line(output: bytes) -> str:
    """Return the last line that a launcher printed, without the launcher's name."""
    line = output.decode("utf-8", "replace").rstrip().rpartition("\n")[2].removeprefix("bwrap: ")
    return line or "its launcher ended without a message"


class _Child:
    """A started command: its pipe, its end and its process tree."""

    def __init__(self, command: Command) -> None:
        self._loop = asyncio.get_running_loop()
        marker = os.urandom(16).hex()
        with ExitStack() as undo:
            self._pipe, inlet = system.open_pipe()
            undo.callback(os.close, self._pipe)
            with ExitStack() as given:
                given.callback(os.close, inlet)
                stdin = subprocess.DEVNULL
                self._permission: socket.socket | None = None
                if command.awaits_permission:
                    self._permission, asking = socket.socketpair()
                    undo.callback(self._permission.close)
                    stdin = given.enter_context(asking).fileno()
                self._process = _start(command, marker, stdin=stdin, stdout=inlet)
            undo.pop_all()
        self._process_tree = open_process_tree(self._process.pid, marker)
        self._has_launcher = command.has_launcher
        self.is_launching = command.awaits_permission
        """True until the command asks for permission to run."""
        self._exited = self._watch()
        if self._permission is not None:
            system.watch_readable(self._loop, self._permission.fileno(), self._permit)
        self._at_end_of_file = False
        self._ended_at = 0.0
        self._last_output_at = 0.0
        self._deadline = self.now() + command.timeout

    def now(self) -> float:
        """Return the event loop's time in seconds."""
        return self._loop.time()

    def is_running(self) -> bool:
        """Return whether the process itself is running."""
        return not self._exited.done()

    async def read(self, until: float) -> bytes | None:
        """Return new output, `b""` if none arrives before `until`, or None if the command is over or timed out."""
        # One piece per event loop iteration, so that a flood of output does not starve other tasks.
        await asyncio.sleep(0)
        while not self._is_over():
            if piece := self._read_pipe():
                self._last_output_at = self.now()
                return piece
            if self.now() >= until:
                return b""
            if not self._is_over():  # the end of the pipe may just have been reached
                await self._wait_for_change(until)
        return None

    async def has_left_processes(self) -> bool:
        """Return whether processes of the command remain and are not just about to end."""
        if not self._process_tree.alive():
            return False
        await asyncio.sleep(OUTPUT_PAUSE_SECONDS)
        return bool(self._process_tree.alive())

    async def end(self) -> None:
        """End all remaining processes; a cancellation meanwhile skips the grace period and is raised at the end."""
        cancelled = False
        # A launcher that is signaled at once would kill everything it launched, and nothing could end in order.
        told: set[int] = {self._process.pid} if self._has_launcher else set()
        start = self.now()
        while (alive := self._process_tree.alive()) or not self._exited.done():
            waited = self.now() - start
            if waited > GRACE_SECONDS + KILL_SECONDS:
                break
            if cancelled or waited > GRACE_SECONDS:
                self._process_tree.kill(alive)
            else:
                self._process_tree.send(signal.SIGTERM, [target for target in alive if target not in told])
                told.update(alive)
            try:
                await asyncio.sleep(POLL_SECONDS)
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError

    def final_output(self) -> list[bytes]:
        """Return what is left in the pipe, at most about `MAX_FINAL_OUTPUT_BYTES`."""
        pieces: list[bytes] = []
        while sum(map(len, pieces)) < MAX_FINAL_OUTPUT_BYTES and (piece := self._read_pipe()):
            pieces.append(piece)
        return pieces

    def exit_code(self) -> int:
        """Reap the process and return its exit code; SIGKILL's if the process survived even that."""
        code = self._process.poll()
        return -system.KILL_SIGNAL if code is None else code

    def close(self) -> None:
        """Close the pipe and reap the process."""
        self._process.poll()
        self._close_permission()
        os.close(self._pipe)

    def _watch(self) -> asyncio.Future[int | None]:
        """Return a future that is done when the process has ended.

        The process is reaped last, so that its number is not reused. If only the group is visible, it is reaped now,
        because a zombie would keep the group alive.
        """
        try:
            if not has_own_proc():
                raise OSError("no /proc")
            descriptor = system.open_pidfd(self._process.pid)
        except OSError:
            return self._loop.run_in_executor(None, self._process.wait)
        ended: asyncio.Future[int | None] = self._loop.create_future()

        def on_end() -> None:
            system.unwatch_readable(self._loop, descriptor)
            os.close(descriptor)
            ended.set_result(None)

        system.watch_readable(self._loop, descriptor, on_end)
        return ended

    def _permit(self) -> None:
        """Answer that the command may run.

        The answer uses a socket: a killed service never answers, whereas a pipe could stay open for a while.
        """
        if self._permission is not None:
            with suppress(OSError):
                if self._permission.recv(1):
                    self.is_launching = False
                    self._permission.send(b"\n")
            self._close_permission()

    def _close_permission(self) -> None:
        if self._permission is not None:
            system.unwatch_readable(self._loop, self._permission.fileno())
            self._permission.close()
            self._permission = None

    def _is_over(self) -> bool:
        if self.is_running():
            return self.now() >= self._deadline
        if self._at_end_of_file:
            return True
        self._ended_at = self._ended_at or self.now()
        return self.now() >= self._drain_deadline()

    def _drain_deadline(self) -> float:
        """Return the time until which an ended process's pipe is read."""
        return min(max(self._ended_at, self._last_output_at) + DRAIN_IDLE_SECONDS, self._ended_at + MAX_DRAIN_SECONDS)

    def _read_pipe(self) -> bytes:
        """Return what is in the pipe now."""
        if self._at_end_of_file:
            return b""
        try:
            piece = system.read_nonblocking(self._pipe, READ_BYTES)
        except BlockingIOError:
            return b""
        self._at_end_of_file = not piece
        return piece

    async def _wait_for_change(self, until: float) -> None:
        """Return when the pipe is readable, the process ends, or `until` is reached."""
        wake: asyncio.Future[None] = self._loop.create_future()
        sources: list[asyncio.Future[None] | asyncio.Future[int | None]] = [wake]
        if self.is_running():
            sources.append(self._exited)
            until = min(until, self._deadline)
        else:
            until = min(until, self._drain_deadline())
        if not self._at_end_of_file:
            system.watch_readable(self._loop, self._pipe, partial(_set_done, wake))
        try:
            await asyncio.wait(sources, timeout=max(0.0, until - self.now()), return_when=asyncio.FIRST_COMPLETED)
        finally:
            system.unwatch_readable(self._loop, self._pipe)
            wake.cancel()


def _start(command: Command, marker: str, *, stdin: int, stdout: int) -> subprocess.Popen[bytes]:
    """Start a command with the given standard input and output. Raises OSError or ValueError."""
    start = partial(
        subprocess.Popen[bytes],
        command.argv,
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        cwd=command.cwd,
        env={**command.environment, MARKER: f"{command.environment.get(MARKER, '')} {marker}".strip()},
        start_new_session=True,
        pass_fds=command.descriptors,
    )
    return start() if command.starter is None else command.starter.submit(start).result()


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
