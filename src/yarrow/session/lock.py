"""The writer's lock of a session: a file beside it that names the process which writes it now.

The file is never deleted: two processes could then each hold a lock, on two files of one name.
"""

import contextlib
import os
from pathlib import Path

from yarrow.errors import Code, Precondition
from yarrow.platform import system


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
