"""Disk access of sessions: system calls that can fail, atomic files, the writer's lock."""

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from yarrow.errors import Code, Precondition, YarrowError
from yarrow.platform import system
from yarrow.session.ids import new_id

P = ParamSpec("P")
R = TypeVar("R")

MAX_THREADS = 4
"""Threads of a `Disk`. When all are busy, calls wait in order; the event loop never does."""


class Syscalls(Protocol):
    """What is asked of the operating system about an open file; each call raises `OSError` when refused."""

    def write(self, fd: int, data: memoryview, /) -> int:
        """Write at the end; return how many bytes were taken, perhaps fewer than given."""
        ...

    def sync(self, fd: int, /, *, directory: bool) -> None:
        """Return when the data of a file, or the entries of a directory, survive a power failure."""
        ...

    def truncate(self, fd: int, length: int, /) -> None:
        """Cut the file to `length` bytes."""
        ...


class OsSyscalls:
    """The operating system itself."""

    def write(self, fd: int, data: memoryview, /) -> int:
        """Write at the end."""
        return os.write(fd, data)

    def sync(self, fd: int, /, *, directory: bool) -> None:
        """Force to the medium."""
        system.sync(fd, data_only=not directory)  # entries are metadata

    def truncate(self, fd: int, length: int, /) -> None:
        """Cut the file."""
        os.ftruncate(fd, length)


class Disk:
    """A few threads, shared by all sessions of a process, that wait for the disk in place of the event loop.

    They start with the first call. The owner closes it when the logs on it are closed.
    """

    def __init__(self, syscalls: Syscalls | None = None, *, threads: int = MAX_THREADS) -> None:
        self.syscalls: Syscalls = OsSyscalls() if syscalls is None else syscalls
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="yarrow-disk")
        self._closed = False

    def submit(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[R]:
        """Run a function in a thread, on behalf of the running event loop.

        Raises `YarrowError` (DRAINING) when this was closed.
        """
        if self._closed:
            raise YarrowError("the service has ended", code=Code.DRAINING)
        return asyncio.wrap_future(self._pool.submit(function, *args, **kwargs))

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function in a thread and return its result; a cancelled caller still waits for its end."""
        future = self.submit(function, *args, **kwargs)
        await wait_until_done(future)
        return future.result()

    def close(self) -> None:
        """Wait for the calls under way and end the threads; no more are taken."""
        self._closed = True
        self._pool.shutdown()


async def wait_until_done(future: asyncio.Future[R]) -> None:
    """Return when a future is done; a cancelled caller still waits for that. Its error is left to the caller."""
    cancelled = False
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError:
            cancelled = True
    future.exception()  # looked at, so that nobody is told that it was not
    if cancelled:
        raise asyncio.CancelledError


_NO_HARD_LINK_ERRORS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK}
_ERROR_TEXTS = {
    errno.ENOSPC: "the disk is full; free some space and go on, nothing recorded before is lost",
    errno.EDQUOT: "the disk quota is used up; free some space and go on, nothing recorded before is lost",
    errno.EIO: "the disk reports an error; check it before going on",
    errno.EROFS: "the file system is read-only; make it writable or choose another directory",
    errno.EACCES: "permission is denied; change the permissions or choose another directory",
    errno.EPERM: "the operation is not permitted; change the permissions or choose another directory",
    errno.ENOTDIR: "a part of the path is not a directory; choose another",
    errno.EMFILE: "too many files are open; close some sessions or raise the limit",
}


def describe_os_error(error: OSError) -> str:
    """Return why the operating system refused, and what to do, as the rest of a sentence."""
    return _ERROR_TEXTS.get(error.errno or 0) or (error.strerror or str(error)).lower()


def write_all(calls: Syscalls, fd: int, data: bytes) -> None:
    """Write all bytes, in however many calls."""
    rest = memoryview(data)
    while rest:
        taken = calls.write(fd, rest)
        if taken == 0:
            raise OSError(errno.EIO, "nothing was written")
        rest = rest[taken:]


def create_file(calls: Syscalls, path: Path, data: bytes, *, sync: bool) -> None:
    """Make a file of mode 0600 that appears with all of `data` or not at all; missing directories get mode 0700.

    With `sync` it survives a power failure from then on. Raises `FileExistsError`, or `OSError` when refused.
    """
    changed = [path.parent, *make_directories(path.parent)]
    draft = path.with_name(f".{new_id()}.draft")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.BASE_FLAGS, 0o600)
    try:
        try:
            draft.chmod(0o600)  # whatever the umask
            write_all(calls, fd, data)
            if sync:
                calls.sync(fd, directory=False)
        finally:
            os.close(fd)
        _publish(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    if sync:
        try:
            for directory in changed:
                sync_directory(calls, directory)
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()
            raise


def make_directories(directory: Path) -> list[Path]:
    """Make what is missing, with mode 0700; return the directories that have a new entry. Raises `OSError`."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
        path.chmod(0o700)  # whatever the umask
    return [path.parent for path in missing]


def _publish(draft: Path, path: Path) -> None:
    try:
        path.hardlink_to(draft)
    except OSError as error:
        if error.errno not in _NO_HARD_LINK_ERRORS:
            raise
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        draft.rename(path)


def sync_directory(calls: Syscalls, directory: Path) -> None:
    """Return when the entries of a directory survive a power failure. Raises `OSError`."""
    fd = system.open_directory(directory)
    try:
        calls.sync(fd, directory=True)
    finally:
        os.close(fd)


class WriterLock:
    """The right to append to one session, against other processes and within this one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    @property
    def is_held(self) -> bool:
        """Whether this object has it."""
        return self._fd >= 0

    def acquire(self) -> None:
        """Take the lock without waiting.

        Raises `Precondition` (LOCKED) naming the process that has it, and `OSError` when the file cannot be used.
        """
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | system.BASE_FLAGS, 0o600)
        with contextlib.ExitStack() as undone:
            undone.callback(os.close, fd)
            if self.is_held:
                raise self._locked_error(fd)
            try:
                system.try_lock(fd)
            except BlockingIOError:
                raise self._locked_error(fd) from None
            with contextlib.suppress(OSError):  # a full disk: the lock holds, only its refusals name nobody
                os.write(fd, b"%-20d\n" % os.getpid())  # of one length, so that it overwrites what was there
            undone.pop_all()
        self._fd = fd

    def release(self) -> None:
        """Give it back; without it, nothing happens."""
        if self.is_held:
            os.close(self._fd)
            self._fd = -1

    def _locked_error(self, fd: int) -> Precondition:
        holder = os.read(fd, 32).strip().decode("ascii", "replace")
        who = "this process" if holder == str(os.getpid()) else f"process {holder}" if holder else "another process"
        return Precondition(
            f"session {self._path.stem} is being written by {who}; wait for the end of its run, or branch from it",
            code=Code.LOCKED,
        )
