"""Standard output and error behind one writer thread: a slow reader never blocks the run, a closed pipe ends it.

Only a thread works for every kind of descriptor: a pipe, a stopped terminal, a file on a slow disk. Making the
descriptor non-blocking would affect every program that shares it.
"""

import asyncio
import errno
import os
import select
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import groupby
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Self

from yarrow.errors import StorageError
from yarrow.platform import system

MAX_BUFFER_CHARACTERS = 1 << 20
"""Maximum queued characters. Beyond it `drain` waits; the service then drops this client's events and reports a gap."""


class ReaderGone(Exception):
    """The reader of standard output is gone; the run ends quietly."""


class OutputStream:
    """One of the two descriptors; texts are written in the order of the calls, also across the two."""

    def __init__(self, output: "OutputWriter", descriptor: int) -> None:
        self.descriptor = descriptor
        self.is_terminal = os.isatty(descriptor)
        self.failure: OSError | None = None
        """The error after which nothing more is written."""
        self._output = output

    def write(self, text: str) -> None:
        """Queue text and return at once. Raises as `OutputWriter`."""
        self._output.write(self, text)

    async def drain(self) -> None:
        """Wait until the queue is within the limit. Raises as `OutputWriter`."""
        await self._output.drain()


class OutputWriter:
    """Context manager for standard output and error; on exit it waits until everything is written.

    If the reader of standard output disconnects, the block is interrupted, even while it waits for something else,
    and raises `ReaderGone`. If standard output cannot be written, `write`, `drain` and the end of the block raise
    `StorageError`. Text that standard error cannot accept is dropped: no stream is left to report it on.
    """

    def __init__(self, *, out: int = 1, err: int = 2, limit: int = MAX_BUFFER_CHARACTERS) -> None:
        self.out = OutputStream(self, out)
        self.err = OutputStream(self, err)
        self._limit = limit
        self._queue: SimpleQueue[tuple[OutputStream, str] | None] = SimpleQueue()
        # Each counter is incremented by only one thread, so neither needs a lock.
        self._queued_characters = 0
        self._written_characters = 0
        self._waiting = 0
        self._progress = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._watch = _ReaderWatch(out, partial(self._fail, self.out, OSError(errno.EPIPE, os.strerror(errno.EPIPE))))
        self._interrupt = _Interrupt()
        self._thread = Thread(target=self._pump, name="yarrow-output", daemon=True)

    async def __aenter__(self) -> Self:
        """Start writing, and watching for the reader of standard output to disconnect."""
        self._interrupt.arm()
        self._thread.start()
        self._watch.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write everything queued."""
        self._watch.stop()
        interrupted = self._interrupt.disarm() and isinstance(error, asyncio.CancelledError)
        try:
            await self._wait(0)
        finally:
            self._queue.put(None)
        self._thread.join()
        if error is None or interrupted:
            self._check()

    def write(self, stream: OutputStream, text: str) -> None:
        """Queue text for the thread."""
        self._check()
        self._queued_characters += len(text)
        self._queue.put((stream, text))

    async def flush(self) -> None:
        """Wait until everything queued is written."""
        await self._wait(0)
        self._check()

    async def drain(self) -> None:
        """Wait until the queued characters are within the limit."""
        await self._wait(self._limit)
        self._check()

    async def _wait(self, limit: int) -> None:
        # Incremented before the first check, so that the thread signals everything it writes after that check.
        self._waiting += 1
        try:
            while self._queued_characters - self._written_characters > limit:
                self._progress.clear()
                await self._progress.wait()
        finally:
            self._waiting -= 1

    def _check(self) -> None:
        failure = self.out.failure
        if failure is None:
            return
        terminal_closed = failure.errno == errno.EIO and self.out.is_terminal
        if terminal_closed or failure.errno in (errno.EPIPE, errno.ECONNRESET):
            raise ReaderGone
        raise StorageError(f"cannot write to standard output: {failure.strerror}")

    def _fail(self, stream: OutputStream, failure: OSError) -> None:
        stream.failure = failure
        if stream is self.out:
            self._interrupt()

    # ---- runs in the writer thread ----

    def _pump(self) -> None:
        item = self._queue.get()
        while item:
            batch = [item]
            with suppress(Empty):
                while item := self._queue.get_nowait():
                    batch.append(item)
            for stream, items in groupby(batch, key=lambda each: each[0]):
                self._write_batch(stream, "".join(text for _, text in items))
            # None if the end marker was reached; otherwise the last item of the batch.
            if item:
                item = self._queue.get()

    def _write_batch(self, stream: OutputStream, text: str) -> None:
        try:
            if stream.failure is None:
                _write_all(stream.descriptor, text.encode("utf-8", "backslashreplace"))
        except OSError as failure:
            stream.failure = failure
            self._call(partial(self._fail, stream, failure))
        self._written_characters += len(text)
        if self._waiting:
            self._call(self._progress.set)

    def _call(self, function: Callable[[], object]) -> None:
        # If the reader is so slow that the program has ended, the loop is closed and no task is left to notify.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)


class _Interrupt:
    """Cancels the task that armed it, once; `disarm` undoes the cancellation."""

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._fired = False

    def arm(self) -> None:
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task else 0

    def __call__(self) -> None:
        if self._task and not self._fired:
            self._fired = True
            self._task.cancel()

    def disarm(self) -> bool:
        """Undo the cancellation; return whether it was the only one."""
        task, self._task = self._task, None
        return self._fired and task is not None and task.uncancel() <= self._cancelling


class _ReaderWatch:
    """Calls back when the reader of a pipe closes it, which otherwise only the next write would reveal."""

    def __init__(self, descriptor: int, gone: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._gone = gone
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        if system.can_detect_peer_close(self._descriptor):
            system.watch_readable(self._loop, self._descriptor, self._check)

    def stop(self) -> None:
        system.unwatch_readable(self._loop, self._descriptor)

    def _check(self) -> None:
        self.stop()
        # A pipe open in both directions is readable because of our own writes; that is not a disconnect.
        if system.is_peer_closed(self._descriptor):
            self._gone()


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            # The process that passed us the descriptor made it non-blocking.
            select.select([], [descriptor], [])


def redirect_stdout() -> int:
    """Reserve standard output for the answer; return a duplicate of its descriptor.

    Descriptor 1 then leads to standard error, also for child processes that an extension starts.
    """
    own = os.dup(1)
    os.dup2(2, 1)
    return own


def open_standard_descriptors() -> None:
    """Open the null device in place of each closed standard descriptor, so that none of our files gets its number."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # `open` returns the lowest free number, which is this one.
            os.open(os.devnull, os.O_RDWR)
