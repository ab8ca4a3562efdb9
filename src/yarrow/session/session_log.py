"""Log of one open session: a record is on disk when `append` returns."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from yarrow.errors import Code, InvalidArgument, LimitExceeded, NotFound, Precondition, StorageError
from yarrow.platform import system
from yarrow.session.blobs import BlobFolder, encode_with_blobs
from yarrow.session.disk_access import (
    Disk,
    Syscalls,
    WriterLock,
    create_file,
    describe_os_error,
    wait_until_done,
    write_all,
)
from yarrow.session.line_codec import MAX_LINE_BYTES, encode_line
from yarrow.session.record import Header, Record

SyncMode = Literal["message", "run", "none"]
"""Sync policy of written data: before `append` returns, at the end of a run, or never."""


class Log(Protocol):
    """Destination of a session's records."""

    def lock(self, *first: Record) -> contextlib.AbstractAsyncContextManager[bool]:
        """Hold the right to append for the duration of a run, and append `first`.

        The value is True if others have appended meanwhile; then `first` has not been appended.
        """
        ...

    async def append(self, *records: Record) -> None:
        """Append records in order; they are never lost once this has returned."""
        ...

    async def flush(self) -> None:
        """Return when everything appended is as durable as the log makes it."""
        ...


class SessionLog:
    """One append-only session file, written by the log that holds its lock.

    Must be used from one event loop. Keeps no file open without the lock.
    """

    def __init__(self, path: Path, *, sync: SyncMode, disk: Disk, seen: int) -> None:
        """Use `create` or `open` instead; `seen` is the file length in bytes known to the owner."""
        self.path = path
        self._sync: SyncMode = sync
        self._disk = disk
        self._known_length = seen
        self._file = LogFile(path, disk.syscalls, durable=sync != "none")
        self._queue = GroupCommit(self._file, disk)
        self._writer_lock = WriterLock(path.with_suffix(".lock"))

    @classmethod
    async def create(cls, path: Path, header: Header, *, sync: SyncMode, disk: Disk) -> "SessionLog":
        """Create a session atomically with its header, readable by its owner only.

        Raises `InvalidArgument` if the file exists and `StorageError` if it cannot be created.
        """
        line = encode_line(header)
        try:
            await disk.run(create_file, disk.syscalls, path, line, sync=sync != "none")
        except FileExistsError:
            raise InvalidArgument("session_id", f"{path.stem} already exists; resume it or choose another id") from None
        except OSError as error:
            raise StorageError(f"cannot create the session {path}: {describe_os_error(error)}") from error
        return cls(path, sync=sync, disk=disk, seen=len(line))

    @classmethod
    async def open(cls, path: Path, *, sync: SyncMode, disk: Disk) -> "SessionLog":
        """Return the log of an existing session.

        Load the session after this call, so that no concurrent append goes unnoticed. Raises `NotFound` and
        `StorageError`.
        """
        try:
            status = await disk.run(path.stat)
        except FileNotFoundError:
            raise NotFound(f"session file {path} not found") from None
        except OSError as error:
            raise StorageError(f"cannot open the session {path}: {describe_os_error(error)}") from error
        return cls(path, sync=sync, disk=disk, seen=status.st_size)

    @contextlib.asynccontextmanager
    async def lock(self, *first: Record) -> AsyncGenerator[bool]:
        """Hold the writer's lock; the value is the result of `acquire`."""
        grown = await self.acquire(*first)
        try:
            yield grown
        finally:
            await self.release()

    async def acquire(self, *first: Record) -> bool:
        """Acquire the writer's lock; return True if others have appended, so that the session must be reloaded.

        Otherwise append `first` in the same call of the disk. Raises `Precondition` (LOCKED) naming the process that
        holds the lock, and as `append`; then it is not held.
        """
        lines, blobs = _encode(first)
        self._queue.check_room(lines, blobs)
        known = self._known_length
        job = self._disk.submit(self._lock_and_append, lines, blobs)
        try:
            await wait_until_done(job)
        except asyncio.CancelledError:
            if job.exception() is None:
                self._close_and_unlock()
                self._known_length = known  # the caller does not know of `first`
            raise
        return job.result() != known

    async def release(self) -> None:
        """Release the lock after pending writes; with `sync` = run, flush first."""
        try:
            if self._sync == "run" and self._writer_lock.is_held:
                await self.flush()
        finally:
            try:
                await self._queue.wait_until_idle()
            finally:
                self._close_and_unlock()

    async def append(self, *records: Record) -> None:
        """Append records in order; return when they are durable or, with `sync` = run or none, written.

        Requires the lock. If cancelled, the records are written anyway. Raises `StorageError` if the write fails; the
        records are kept and written before the next ones, so do not append them again. Raises `LimitExceeded` for a
        record over `MAX_LINE_BYTES`, or beyond `MAX_PENDING_BYTES`; these records are not kept.
        """
        lines, blobs = _encode(records)
        await self._commit(lines, blobs, sync=self._sync == "message")

    async def flush(self) -> None:
        """Write what failed earlier and, unless `sync` is none, return when all is durable. Raises as `append`."""
        await self._commit([], {}, sync=self._sync != "none")

    async def close(self) -> None:
        """Write what failed earlier and release the lock. Raises `StorageError` if it fails again."""
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

    def _lock_and_append(self, lines: list[bytes], blobs: Mapping[str, bytes]) -> int:
        """Return the length of the file when it was locked; append only if it is the known one."""
        length = self._lock_and_open()
        if lines and length == self._known_length:
            try:
                self._file.append(b"".join(lines), blobs, sync=self._sync == "message")
            except StorageError:
                self._close_and_unlock()
                raise
        return length

    def _lock_and_open(self) -> int:
        """Lock before opening: the file length is only reliable under the lock."""
        try:
            self._writer_lock.acquire()
        except OSError as error:
            raise StorageError(f"cannot lock the session {self.path}: {describe_os_error(error)}") from error
        try:
            return self._file.open()
        except StorageError:
            self._writer_lock.release()
            raise

    def _close_and_unlock(self) -> None:
        if self._writer_lock.is_held:
            self._known_length = self._file.close()
            self._writer_lock.release()


def _encode(records: Sequence[Record]) -> tuple[list[bytes], Mapping[str, bytes]]:
    """Return the lines of records, and the blobs that they reference. Raises `LimitExceeded`."""
    lines, blobs, longest = encode_with_blobs(records)
    if longest > MAX_LINE_BYTES:
        raise LimitExceeded(f"a record of {longest} bytes exceeds the limit of {MAX_LINE_BYTES}")
    return lines, blobs


class LogFile:
    """A session file open for appending. Used by one thread at a time.

    Lines that could not be written are kept in `unwritten` and written first in the next call, after their blobs.
    Existing content is never changed; only the remains of a failed call are removed. Methods raise `StorageError`.
    """

    def __init__(self, path: Path, calls: Syscalls, *, durable: bool) -> None:
        """Create the object; if `durable`, blobs are synced before a line that references them is written."""
        self.unwritten = b""
        self._blobs: dict[str, bytes] = {}
        """Blobs, by digest, that unwritten lines reference and that are not on disk yet."""
        self._path = path
        self._calls = calls
        self._folder = BlobFolder(path, calls, sync=durable)
        self._fd = -1
        self._length = 0
        """File length in bytes."""
        self._synced = 0
        """Bytes of the file that need no sync."""
        self._needs_newline = False
        """True if the next write must start with a newline, because the file may not end in one."""
        self._sync_failed = False
        """True after a failed sync: the system may have dropped the data and would not report it again."""

    def open(self) -> int:
        """Open the file at its current end and return its length in bytes."""
        try:
            self._reopen()
        except OSError as error:
            raise self._storage_error(error) from error
        self._synced = self._length
        self._sync_failed = False
        return self._length

    def close(self) -> int:
        """Close the file and return its length in bytes; unwritten lines stay in memory."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        return self._length

    @property
    def pending_bytes(self) -> int:
        """Bytes that could not be written so far."""
        return len(self.unwritten) + sum(map(len, self._blobs.values()))

    def is_settled(self, *, sync: bool) -> bool:
        """Return True if a call without lines has nothing to do; must not be used during a call."""
        return not self.pending_bytes and not (sync and self._synced < self._length)

    def append(self, lines: bytes, blobs: Mapping[str, bytes], *, sync: bool) -> None:
        """Write `blobs`, by digest, and `lines`, each with its newline; with `sync`, return when all is durable."""
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
        """Remove the remains of a failed write or, if that fails too, keep only the rest in memory."""
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
        """Read back the data of a failed sync and rewrite it in place, since a second sync is not reliable."""
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
        """Open a new file handle; after a failed sync, the end of the last line is unreliable too."""
        fd = os.open(self._path, os.O_RDWR | os.O_APPEND | system.BASE_FLAGS)
        self.close()
        self._fd = fd
        self._length = os.lseek(fd, 0, os.SEEK_END)
        ends_whole = self._length == 0 or (os.lseek(fd, -1, os.SEEK_END) >= 0 and os.read(fd, 1) == b"\n")
        self._needs_newline = self._sync_failed or not ends_whole

    def _storage_error(self, error: OSError) -> StorageError:
        message = f"{self._path}: {describe_os_error(error)}"
        if lines := self.unwritten.count(b"\n"):
            message += f"; {lines} new lines stay in memory and are written on the next attempt"
        return StorageError(message)


MAX_PENDING_BYTES = 2 * MAX_LINE_BYTES
"""Maximum bytes pending for a busy or full disk; lines beyond that are rejected and not kept."""


class GroupCommit:
    """Write queue of one file: at most one disk call at a time; queued data is written by the next one."""

    def __init__(self, file: LogFile, disk: Disk) -> None:
        self._file = file
        self._disk = disk
        self._batch: _CommitBatch | None = None
        """The batch that waits for the current call."""
        self._idle: asyncio.Future[None] | None = None
        """Done at the end of the last call; None if no call is running."""

    async def write(self, lines: list[bytes], blobs: Mapping[str, bytes], *, sync: bool) -> None:
        """Write blobs, then lines after all earlier ones; return when they are written and, with `sync`, durable.

        If cancelled, the lines are written anyway. Raises `StorageError` if the write fails (the lines are kept), and
        `LimitExceeded` beyond `MAX_PENDING_BYTES` (the lines are not kept).
        """
        if not (lines or blobs) and self._idle is None and self._file.is_settled(sync=sync):
            return
        size = self.check_room(lines, blobs)
        self._batch = batch = self._batch or _CommitBatch()
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

    def check_room(self, lines: list[bytes], blobs: Mapping[str, bytes]) -> int:
        """Return the bytes of lines and blobs. Raises `LimitExceeded` if too many would wait to be written."""
        size = sum(map(len, lines)) + sum(map(len, blobs.values()))
        waiting = self._batch.size if self._batch is not None else 0
        if size and self._file.pending_bytes + waiting + size > MAX_PENDING_BYTES:
            raise LimitExceeded(f"{MAX_PENDING_BYTES} bytes already wait to be written; the new lines are dropped")
        return size

    async def wait_until_idle(self) -> None:
        """Return when no call is running and nothing is queued, even if cancelled meanwhile."""
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
    """Lines written in one disk call, and its outcome: None or the error."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.blobs: dict[str, bytes] = {}
        self.size = 0
        self.sync = False
        self.outcome: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
