"""The log of one open session: a record is on the disk when `append` returns."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from yarrow.errors import Code, InvalidArgument, LimitExceeded, NotFound, Precondition, StorageError
from yarrow.platform import system
from yarrow.session.blobs import BlobFolder, encode_with_blobs
from yarrow.session.disk import Disk, Syscalls, WriterLock, create_file, describe_os_error, wait_until_done, write_all
from yarrow.session.line import MAX_LINE_BYTES, encode_line
from yarrow.session.record import Header, Record

SyncMode = Literal["message", "run", "none"]
"""When what is written is forced to the disk: before `append` returns, at the end of a run, or never."""


class Log(Protocol):
    """Where the records of a session go."""

    def lock(self) -> contextlib.AbstractAsyncContextManager[bool]:
        """Hold the right to append, for the time of a run; the value tells that others have appended meanwhile."""
        ...

    async def append(self, *records: Record) -> None:
        """Add records, in order; once it has returned they are never lost."""
        ...

    async def flush(self) -> None:
        """Return when all that was appended is as durable as the log makes it."""
        ...


class SessionLog:
    """One session file, append-only, written by the one log that holds its lock.

    It belongs to one event loop. Without the lock it holds no file open.
    """

    def __init__(self, path: Path, *, sync: SyncMode, disk: Disk, seen: int) -> None:
        """Use `create` or `open`; `seen` is the length of the file in bytes as the owner knows it."""
        self.path = path
        self._sync: SyncMode = sync
        self._disk = disk
        self._known_length = seen
        self._file = LogFile(path, disk.syscalls, durable=sync != "none")
        self._queue = GroupCommit(self._file, disk)
        self._writer_lock = WriterLock(path.with_suffix(".lock"))

    @classmethod
    async def create(cls, path: Path, header: Header, *, sync: SyncMode, disk: Disk) -> "SessionLog":
        """Make a session that is there with its header or not at all, for its owner's eyes only.

        Raises `InvalidArgument` when the file exists and `StorageError` when it cannot be made.
        """
        line = encode_line(header)
        try:
            await disk.run(create_file, disk.syscalls, path, line, sync=sync != "none")
        except FileExistsError:
            raise InvalidArgument("session_id", f"{path.stem} exists already; resume it or choose another") from None
        except OSError as error:
            raise StorageError(f"the session {path} cannot be made: {describe_os_error(error)}") from error
        return cls(path, sync=sync, disk=disk, seen=len(line))

    @classmethod
    async def open(cls, path: Path, *, sync: SyncMode, disk: Disk) -> "SessionLog":
        """Return the log of a session that exists.

        Load the session after this, not before, so that nothing others append in between goes unnoticed. Raises
        `NotFound` and `StorageError`.
        """
        try:
            status = await disk.run(path.stat)
        except FileNotFoundError:
            raise NotFound(f"there is no session file {path}") from None
        except OSError as error:
            raise StorageError(f"the session {path} cannot be opened: {describe_os_error(error)}") from error
        return cls(path, sync=sync, disk=disk, seen=status.st_size)

    @contextlib.asynccontextmanager
    async def lock(self) -> AsyncGenerator[bool]:
        """Hold the writer's lock; the value is that of `acquire`."""
        grown = await self.acquire()
        try:
            yield grown
        finally:
            await self.release()

    async def acquire(self) -> bool:
        """Take the writer's lock; return whether others have appended since, so that one must load again.

        Raises `Precondition` (LOCKED) naming the process that holds it, and `StorageError`.
        """
        job = self._disk.submit(self._lock_and_open)
        try:
            await wait_until_done(job)
        except asyncio.CancelledError:
            if job.exception() is None:
                self._close_and_unlock()
            raise
        return job.result() != self._known_length

    async def release(self) -> None:
        """Give the lock back after what is under way; with `sync` = run after a flush."""
        try:
            if self._sync == "run" and self._writer_lock.is_held:
                await self.flush()
        finally:
            try:
                await self._queue.wait_until_idle()
            finally:
                self._close_and_unlock()

    async def append(self, *records: Record) -> None:
        """Add records, in order, and return when they are durable; with `sync` = run or none, when they are written.

        Needs the lock. A cancelled caller stops waiting, the records are written all the same. Raises `StorageError`
        when the disk refuses: the records are kept and written before the next ones, do not add them again. Raises
        `LimitExceeded` for a record over `MAX_LINE_BYTES` bytes, or past `MAX_PENDING_BYTES`: these are not kept.
        """
        lines, blobs, longest = encode_with_blobs(records)
        if longest > MAX_LINE_BYTES:
            raise LimitExceeded(f"a record of {longest} bytes is over the {MAX_LINE_BYTES} that a session takes")
        await self._commit(lines, blobs, sync=self._sync == "message")

    async def flush(self) -> None:
        """Write what was refused before and, unless `sync` is none, return when all is durable; raises as `append`."""
        await self._commit([], {}, sync=self._sync != "none")

    async def close(self) -> None:
        """Write what was refused before and give the lock back; raises `StorageError` when it is refused again."""
        if self._file.pending_bytes and not self._writer_lock.is_held:
            await self.acquire()
        try:
            if self._writer_lock.is_held:
                await self.flush()
        finally:
            await self.release()

    async def _commit(self, lines: list[bytes], blobs: Mapping[str, bytes], *, sync: bool) -> None:
        if not self._writer_lock.is_held:
            raise Precondition(f"session {self.path.stem} is not locked for writing", code=Code.NOT_RUNNING)
        await self._queue.write(lines, blobs, sync=sync)

    def _lock_and_open(self) -> int:
        """Lock, then open: only then is the length of the file ours to know."""
        try:
            self._writer_lock.acquire()
        except OSError as error:
            raise StorageError(f"the session {self.path} cannot be locked: {describe_os_error(error)}") from error
        try:
            return self._file.open()
        except StorageError:
            self._writer_lock.release()
            raise

    def _close_and_unlock(self) -> None:
        if self._writer_lock.is_held:
            self._known_length = self._file.close()
            self._writer_lock.release()


class LogFile:
    """A session file open for appending, used by one thread at a time.

    Lines that the disk refused are kept in `unwritten` and go first in the next call, after the blobs that they name.
    What was there before a call is never changed: only what a refused call left behind is taken back. Methods raise
    `StorageError`.
    """

    def __init__(self, path: Path, calls: Syscalls, *, durable: bool) -> None:
        """With `durable`, blobs are safe before a line that names them is written, whenever that is synced itself."""
        self.unwritten = b""
        self._blobs: dict[str, bytes] = {}
        """By digest, those that unwritten lines name and the disk does not have yet."""
        self._path = path
        self._calls = calls
        self._folder = BlobFolder(path, calls, sync=durable)
        self._fd = -1
        self._length = 0
        """Bytes of the file."""
        self._synced = 0
        """Bytes of the file that need no sync from us."""
        self._needs_newline = False
        """The next write begins with a newline, so that it starts a line whatever the file ends in."""
        self._sync_failed = False
        """A sync failed: the system may have dropped the data, and would not say so when asked again."""

    def open(self) -> int:
        """Open the file at its end, wherever that is by now, and return its length in bytes."""
        try:
            self._reopen()
        except OSError as error:
            raise self._storage_error(error) from error
        self._synced = self._length
        self._sync_failed = False
        return self._length

    def close(self) -> int:
        """Close the file and return its length in bytes; what is unwritten stays in memory."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        return self._length

    @property
    def pending_bytes(self) -> int:
        """Bytes that the disk refused so far."""
        return len(self.unwritten) + sum(map(len, self._blobs.values()))

    def is_settled(self, *, sync: bool) -> bool:
        """Whether a call without lines has nothing to do; not to be asked while a call is under way."""
        return not self.pending_bytes and not (sync and self._synced < self._length)

    def append(self, lines: bytes, blobs: Mapping[str, bytes], *, sync: bool) -> None:
        """Add `blobs`, by digest, and `lines`, each with its newline; with `sync` return when all is durable."""
        self.unwritten += lines
        self._blobs.update(blobs)
        try:
            if self._sync_failed:
                self._rewrite_unsynced()
            self._write_blobs()
            self._write(sync=sync)
        except OSError as error:
            raise self._storage_error(error) from error

    def _write_blobs(self) -> None:
        for digest, content in self._blobs.items():
            self._folder.put(digest, content)
        self._folder.sync_directories()
        self._blobs = {}

    def _write(self, *, sync: bool) -> None:
        block = b"\n" + self.unwritten if self._needs_newline and self.unwritten else self.unwritten
        try:
            write_all(self._calls, self._fd, block)
            if sync and (block or self._synced < self._length):
                self._sync_failed = True
                self._calls.sync(self._fd, directory=False)
                self._sync_failed = False
        except OSError:
            self._roll_back(block)
            raise
        self._length += len(block)
        if sync:
            self._synced = self._length
        if block:
            self._needs_newline = False
            self.unwritten = b""

    def _roll_back(self, block: bytes) -> None:
        """Remove what a refused write left in the file or, if that is refused too, keep only the rest in memory."""
        try:
            self._calls.truncate(self._fd, self._length)
        except OSError:
            written = os.fstat(self._fd).st_size - self._length
            if written:
                whole = block.rfind(b"\n", 0, written) + 1
                self._length += written
                self._needs_newline = whole < written
                self.unwritten = block[whole:]

    def _rewrite_unsynced(self) -> None:
        """Read back what a failed sync was for and write it anew in its place, since no second sync is believed."""
        fd = os.open(self._path, os.O_RDWR | system.BASE_FLAGS)
        try:
            os.lseek(fd, self._synced, os.SEEK_SET)
            doubtful = os.read(fd, self._length - self._synced)
            os.lseek(fd, self._synced, os.SEEK_SET)
            write_all(self._calls, fd, doubtful)
        finally:
            os.close(fd)
        self._reopen()
        self._sync_failed = False

    def _reopen(self) -> None:
        """Take a new handle of the file; after a failed sync the end of the last line is as doubtful as the rest."""
        fd = os.open(self._path, os.O_RDWR | os.O_APPEND | system.BASE_FLAGS)
        self.close()
        self._fd = fd
        self._length = os.lseek(fd, 0, os.SEEK_END)
        ends_whole = self._length == 0 or (os.lseek(fd, -1, os.SEEK_END) >= 0 and os.read(fd, 1) == b"\n")
        self._needs_newline = self._sync_failed or not ends_whole

    def _storage_error(self, error: OSError) -> StorageError:
        message = f"{self._path}: {describe_os_error(error)}"
        if lines := self.unwritten.count(b"\n"):
            message += f"; {lines} new lines are kept in memory and written first as soon as it can be"
        return StorageError(message)


MAX_PENDING_BYTES = 2 * MAX_LINE_BYTES
"""Bytes that may wait for a busy or a full disk; lines that would exceed them are refused and not kept."""


class GroupCommit:
    """The queue before one file: at most one call of the disk at a time, and what waits goes with the next one."""

    def __init__(self, file: LogFile, disk: Disk) -> None:
        self._file = file
        self._disk = disk
        self._batch: _CommitBatch | None = None
        """What waits for the call under way."""
        self._idle: asyncio.Future[None] | None = None
        """Done at the end of the last call; None when there is no call under way."""

    async def write(self, lines: list[bytes], blobs: Mapping[str, bytes], *, sync: bool) -> None:
        """Write blobs, and then lines after all earlier ones; return when they are written and, with `sync`, durable.

        A cancelled caller stops waiting, the lines are written all the same. Raises `StorageError` when the disk
        refused, which keeps the lines, and `LimitExceeded` past `MAX_PENDING_BYTES`, which does not.
        """
        if not (lines or blobs) and self._idle is None and self._file.is_settled(sync=sync):
            return
        batch = self._batch or _CommitBatch()
        size = sum(map(len, lines)) + sum(map(len, blobs.values()))
        if size and self._file.pending_bytes + batch.size + size > MAX_PENDING_BYTES:
            raise LimitExceeded(f"{MAX_PENDING_BYTES} bytes wait for the disk already; the new lines are not kept")
        self._batch = batch
        batch.lines += lines
        batch.blobs.update(blobs)
        batch.size += size
        batch.sync |= sync
        if self._idle is None:
            self._start(batch)
            self._idle = asyncio.get_running_loop().create_future()
        error = await asyncio.shield(batch.outcome)
        if error is not None:
            raise error

    async def wait_until_idle(self) -> None:
        """Return when no call is under way and nothing waits; a cancelled caller still waits for that."""
        if self._idle is not None:
            await wait_until_done(self._idle)

    def _start(self, batch: "_CommitBatch") -> None:
        self._batch = None
        job = self._disk.submit(self._file.append, b"".join(batch.lines), batch.blobs, sync=batch.sync)
        job.add_done_callback(partial(self._finish, batch))

    def _finish(self, batch: "_CommitBatch", job: asyncio.Future[None]) -> None:
        batch.outcome.set_result(job.exception())
        if self._batch is not None:
            self._start(self._batch)
        elif self._idle is not None:
            self._idle.set_result(None)
            self._idle = None


class _CommitBatch:
    """Lines that go to the disk together, and what became of them: None, or the error."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.blobs: dict[str, bytes] = {}
        self.size = 0
        self.sync = False
        self.outcome: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
