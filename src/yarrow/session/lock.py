"""The writer's lock of a session: a file beside it that names the process which writes it now.

The file is never deleted: two processes could then each hold a lock, on two files of one name.
"""

import contextlib
import os
import sys
from pathlib import Path

from yarrow.errors import Code, Precondition

if sys.platform == "win32":
    import msvcrt

    _FAR = 1 << 30
    """Where the locked byte lies: past the text, for a locked byte cannot be read by others."""

    def _try_lock(fd: int) -> bool:
        os.lseek(fd, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        finally:
            os.lseek(fd, 0, os.SEEK_SET)
        return True
else:
    import fcntl

    def _try_lock(fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class WriterLock:
    """The right to append to one session, against other processes and within this one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    @property
    def held(self) -> bool:
        """Whether this object has it."""
        return self._fd >= 0

    def take(self) -> None:
        """Take the lock without waiting.

        Raises `Precondition` (LOCKED) naming the process that has it, and `OSError` when the file cannot be used.
        """
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        taken = False
        try:
            taken = not self.held and _try_lock(fd)
            if not taken:
                raise self._refusal(fd)
            with contextlib.suppress(OSError):  # a full disk: the lock holds, only its refusals name nobody
                os.write(fd, b"%-20d\n" % os.getpid())  # of one length, so that it overwrites what was there
        finally:
            if not taken:
                os.close(fd)
        self._fd = fd

    def release(self) -> None:
        """Give it back; without it, nothing happens."""
        if self.held:
            os.close(self._fd)
            self._fd = -1

    def _refusal(self, fd: int) -> Precondition:
        holder = os.read(fd, 32).strip().decode("ascii", "replace")
        who = "this process" if holder == str(os.getpid()) else f"process {holder}" if holder else "another process"
        return Precondition(
            f"session {self._path.stem} is being written by {who}; wait for the end of its run, or branch from it",
            code=Code.LOCKED,
        )
