"""Group commit: lines that arrive while the disk is busy with earlier ones go to it together."""

import asyncio
from collections.abc import Mapping
from functools import partial

from yarrow.errors import LimitExceeded
from yarrow.session.disk import Disk, wait_until_done
from yarrow.session.line import MAX_LINE_BYTES
from yarrow.session.log_file import LogFile

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
