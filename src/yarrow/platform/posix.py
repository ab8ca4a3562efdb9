"""Shared code of Linux and macOS: files by descriptor, process groups, signals, terminals, sockets."""

import os
import signal
import sys

if sys.platform == "win32":
    raise ImportError("yarrow.platform.posix is not for Windows")

import pwd
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from yarrow.platform.base import Platform
else:
    Platform = object  # type checkers compare the class with its contract; at run time nothing is inherited

SHELL_PATHS = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")
"""Paths checked for bash before PATH, so that a directory on PATH cannot override it."""


class Posix(Platform):
    """A system with POSIX calls: what Linux and macOS do alike."""

    BASE_FLAGS = os.O_CLOEXEC
    NOFOLLOW = os.O_NOFOLLOW
    NONBLOCK = os.O_NONBLOCK | os.O_NOCTTY
    DIRECTORY = os.O_DIRECTORY
    KILL_SIGNAL = signal.SIGKILL
    TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    ULIMIT_SHELL = "/bin/sh"
    DEFAULT_EDITOR = "vi"
    HAS_TERMINAL_UI = True
    HAS_UNIX_SOCKETS = True
    NO_SHELL_HINT = ""

    # ---- names of files ----

    def explain_invalid_name(self, path: str) -> str:
        return ""

    def to_posix(self, path: str) -> str:
        # `normpath` keeps two leading slashes, which mean nothing special here.
        return "/" + path.lstrip("/")

    # ---- open directories and their content ----

    def open_directory(self, path: Path | str, *, follow: bool = True) -> int:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))

    def open_at(self, directory: int, name: str, flags: int, *, mode: int = 0o777) -> int:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=directory)

    def openat_nofollow(self, directory: int, names: tuple[str, ...], flags: int) -> int:
        *above, last = names
        at = os.dup(directory)
        try:
            for name in above:
                below = self.open_at(at, name, os.O_RDONLY | os.O_DIRECTORY)
                os.close(at)
                at = below
            return self.open_at(at, last, flags)
        finally:
            os.close(at)

    def mkdir_at(self, directory: int, name: str) -> None:
        os.mkdir(name, dir_fd=directory)

    def stat_at(self, directory: int, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)

    def can_write_at(self, directory: int, name: str) -> bool:
        return os.access(name, os.W_OK | os.X_OK if name == "." else os.W_OK, dir_fd=directory)

    def unlink_at(self, directory: int, name: str) -> None:
        os.unlink(name, dir_fd=directory)

    def replace_at(self, directory: int, name: str, new: str) -> None:
        os.replace(name, new, src_dir_fd=directory, dst_dir_fd=directory)

    def link_at(self, directory: int, name: str, new: str) -> None:
        os.link(name, new, src_dir_fd=directory, dst_dir_fd=directory)

    def scandir_at(self, directory: int) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        return os.scandir(directory)

    def listdir_at(self, directory: int) -> list[str]:
        return os.listdir(directory)

    # ---- files: locks, owners ----

    def try_lock(self, descriptor: int) -> None:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def try_lock_directory(self, path: Path) -> int:
        descriptor = self.open_directory(path, follow=False)
        try:
            self.try_lock(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    @contextmanager
    def lock_directory(self, path: Path) -> Generator[int]:
        import fcntl

        descriptor = self.open_directory(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    def raise_open_file_limit(self, most: int) -> int:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return most if soft == resource.RLIM_INFINITY else soft

    def get_user_id(self) -> int:
        return os.getuid()

    def get_account_home(self, uid: int | None) -> str:
        with suppress(KeyError):
            return pwd.getpwuid(os.geteuid() if uid is None else uid).pw_dir
        return ""

    def is_root(self) -> bool:
        return os.geteuid() == 0

    def is_owned(self, status: os.stat_result) -> bool:
        return status.st_uid == os.geteuid()

    def is_private_mode(self, mode: int) -> bool:
        return not mode & 0o077

    def set_mode(self, descriptor: int, mode: int) -> None:
        os.fchmod(descriptor, mode)

    def copy_owner(self, descriptor: int, like: os.stat_result) -> None:
        new = os.fstat(descriptor)
        if (new.st_uid, new.st_gid) != (like.st_uid, like.st_gid):
            os.fchown(descriptor, like.st_uid, like.st_gid)

    # ---- processes ----

    def find_shell(self, environment: Mapping[str, str]) -> str:
        """Return the shell that runs a command after `-c`: bash, or sh if there is none."""
        for path in SHELL_PATHS:
            if os.access(path, os.X_OK):
                return path
        from yarrow.platform.search_path import find_program

        return find_program("bash", environment) or "/bin/sh"

    def create_job(self, leader: int) -> None:
        """Return None: the process group takes the place of a job."""

    def kill_group(self, leader: int) -> None:
        os.killpg(leader, signal.SIGKILL)

    def exit_at_stdin_end(self) -> None:
        """Kill this process, which must lead its group, as soon as standard input ends.

        A thread cannot do this, because a library may hold the GIL for long. A second process, forked while this one
        has a single thread and little memory, waits for the end and kills the group, including itself.
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

    # ---- pipes, terminals and sockets ----

    def open_pipe(self) -> tuple[int, int]:
        source, sink = os.pipe()
        os.set_blocking(source, False)
        return source, sink

    def set_nonblocking(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)

    def read_nonblocking(self, descriptor: int, most: int) -> bytes:
        return os.read(descriptor, most)

    def wait_readable(self, descriptor: int, seconds: float | None) -> bool:
        import select

        return bool(select.select([descriptor], [], [], seconds)[0])

    def watch_readable(self, loop: "AbstractEventLoop", descriptor: int, arrived: Callable[[], object]) -> None:
        loop.add_reader(descriptor, arrived)

    def unwatch_readable(self, loop: "AbstractEventLoop", descriptor: int) -> None:
        loop.remove_reader(descriptor)

    def can_detect_peer_close(self, descriptor: int) -> bool:
        import stat

        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)

    def is_peer_closed(self, descriptor: int) -> bool:
        import select

        poll = select.poll()
        poll.register(descriptor, 0)
        return any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))

    def prepare_terminal(self) -> None:
        """Do nothing: terminals interpret UTF-8 and escape sequences here."""

    def flush_input(self, descriptor: int) -> None:
        import termios

        termios.tcflush(descriptor, termios.TCIFLUSH)

    @contextmanager
    def set_cbreak_mode(self, descriptor: int) -> Generator[bool]:
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

    def is_in_background(self, descriptor: int) -> bool:
        try:
            return os.tcgetpgrp(descriptor) != os.getpgrp()
        except OSError:  # not our controlling terminal: it has no jobs
            return False

    def is_socket_listening(self, path: Path) -> bool:
        import socket

        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            return probe.connect_ex(os.fspath(path)) == 0
