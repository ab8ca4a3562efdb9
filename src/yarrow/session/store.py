"""One open session: records go in, and when `append` returns they are on the disk."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Literal, Protocol

from yarrow.errors import Code, InvalidArgument, LimitExceeded, NotFound, Precondition, StorageError
from yarrow.session.blobs import encode_with_blobs
from yarrow.session.disk import Disk, wait_until_done
from yarrow.session.durable_files import create_file, describe_os_error
from yarrow.session.group_commit import GroupCommit
from yarrow.session.line import MAX_LINE_BYTES, encode_line
from yarrow.session.lock import WriterLock
from yarrow.session.log_file import LogFile
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
