"""Disk access of sessions: fallible system calls, atomic file creation and the writer's lock."""

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
"""Threads of a `Disk`. If all are busy, calls are queued in order; the event loop never blocks."""


class Syscalls(Protocol):
    """System calls on an open file; each raises `OSError` on failure."""

    def write(self, fd: int, data: memoryview, /) -> int:
        """Write at the end; return the number of bytes written, which may be less than the data."""
        ...

    def sync(self, fd: int, /, *, directory: bool) -> None:
        """Return when the file's data, or the directory's entries, survive a power failure."""
        ...

    def truncate(self, fd: int, length: int, /) -> None:
        """Truncate the file to `length` bytes."""
        ...


class OsSyscalls:
    """System calls of the operating system."""

    def write(self, fd: int, data: memoryview, /) -> int:
        """Write at the end."""
        return os.write(fd, data)

    def sync(self, fd: int, /, *, directory: bool) -> None:
        """Force the data to the medium."""
        system.sync(fd, data_only=not directory)  # entries are metadata

    def truncate(self, fd: int, length: int, /) -> None:
        """Truncate the file."""
        os.ftruncate(fd, length)


class Disk:
    """A few threads, shared by all sessions of a process, that do disk access without blocking the event loop.

    They start with the first call. The owner closes the disk after the logs that use it.
    """

    def __init__(self, syscalls: Syscalls | None = None, *, threads: int = MAX_THREADS) -> None:
        self.syscalls: Syscalls = OsSyscalls() if syscalls is None else syscalls
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="yarrow-disk")
        self._closed = False

    def submit(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[R]:
        """Run a function in a thread on behalf of the running event loop.

        Raises `YarrowError` (DRAINING) if the disk is closed.
        """
        if self._closed:
            raise YarrowError("the service has stopped", code=Code.DRAINING)
        return asyncio.wrap_future(self._pool.submit(function, *args, **kwargs))

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function in a thread and return its result; if cancelled, still wait for it to finish."""
        future = self.submit(function, *args, **kwargs)
        await wait_until_done(future)
        return future.result()

    def close(self) -> None:
        """Wait for the running calls and end the threads; later calls are rejected."""
        self._closed = True
        self._pool.shutdown()


async def wait_until_done(future: asyncio.Future[R]) -> None:
    """Return when a future is done, even if cancelled meanwhile. The caller must handle the future's error."""
    cancelled = False
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError:
            cancelled = True
    future.exception()  # mark the exception as retrieved, so that asyncio does not log it
    if cancelled:
        raise asyncio.CancelledError


_NO_HARD_LINK_ERRORS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK}
_ERROR_TEXTS = {
    errno.ENOSPC: "no space left on the device; free some space and retry (recorded data is safe)",
    errno.EDQUOT: "disk quota exceeded; free some space and retry (recorded data is safe)",
    errno.EIO: "input/output error; check the disk",
    errno.EROFS: "read-only file system; make it writable or choose another directory",
    errno.EACCES: "permission denied; change the permissions or choose another directory",
    errno.EPERM: "operation not permitted; change the permissions or choose another directory",
    errno.ENOTDIR: "not a directory; choose another path",
    errno.EMFILE: "too many open files; close some sessions or raise the limit",
}


def describe_os_error(error: OSError) -> str:
    """Return the reason for an operating system error and what to do, to end a sentence with."""
    return _ERROR_TEXTS.get(error.errno or 0) or (error.strerror or str(error)).lower()


def write_all(calls: Syscalls, fd: int, data: bytes) -> None:
    """Write all bytes, in as many calls as needed."""
    rest = memoryview(data)
    while rest:
        taken = calls.write(fd, rest)
        if taken == 0:
            raise OSError(errno.EIO, "nothing was written")
        rest = rest[taken:]


def create_file(calls: Syscalls, path: Path, data: bytes, *, sync: bool) -> None:
    """Create a file of mode 0600 atomically with all of `data`; missing directories get mode 0700.

    With `sync`, it survives a power failure. Raises `FileExistsError`, or `OSError` on failure.
    """
    changed = [path.parent, *make_directories(path.parent)]
    draft = path.with_name(f".{new_id()}.draft")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.BASE_FLAGS, 0o600)
    try:
        try:
            draft.chmod(0o600)  # regardless of the umask
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
    """Create missing directories with mode 0700; return the directories with a new entry. Raises `OSError`."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
        path.chmod(0o700)  # regardless of the umask
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
    """Return when the directory's entries survive a power failure. Raises `OSError`."""
    fd = system.open_directory(directory)
    try:
        calls.sync(fd, directory=True)
    finally:
        os.close(fd)


class WriterLock:
    """The right to append to one session, exclusive among processes and within this one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    @property
    def is_held(self) -> bool:
        """True if this object holds the lock."""
        return self._fd >= 0

    def acquire(self) -> None:
        """Acquire the lock without waiting.

        Raises `Precondition` (LOCKED) naming the holding process, and `OSError` if the lock file cannot be used.
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
            with contextlib.suppress(OSError):  # on a full disk the lock holds, but errors cannot name its process
                os.write(fd, b"%-20d\n" % os.getpid())  # of fixed length, to overwrite the previous number
            undone.pop_all()
        self._fd = fd

    def release(self) -> None:
        """Release the lock; has no effect if it is not held."""
        if self.is_held:
            os.close(self._fd)
            self._fd = -1

    def _locked_error(self, fd: int) -> Precondition:
        holder = os.read(fd, 32).strip().decode("ascii", "replace")
        who = "this process" if holder == str(os.getpid()) else f"process {holder}" if holder else "another process"
        return Precondition(
            f"session {self._path.stem} is locked by {who}; wait until its run ends, or branch from it",
            code=Code.LOCKED,
        )
