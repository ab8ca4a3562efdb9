"""The disk, seen from the sessions: three calls that can fail, and the few threads that make them."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, Protocol, TypeVar

from yarrow.errors import Code, YarrowError
from yarrow.platform import system

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
