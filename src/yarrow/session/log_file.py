"""The end of a session file as a thread sees it: whole lines are added, or none."""

import os
from collections.abc import Mapping
from pathlib import Path

from yarrow.errors import StorageError
from yarrow.platform import system
from yarrow.session.blobs import BlobFolder
from yarrow.session.disk import Syscalls
from yarrow.session.durable_files import describe_os_error, write_all


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
