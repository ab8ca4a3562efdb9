"""Locks a file against other processes for as long as it is open."""

import os
import sys

if sys.platform == "win32":
    import msvcrt

    _FAR = 1 << 30
    """Where the locked byte lies: past the text, for a locked byte cannot be read by others."""

    def lock(descriptor: int) -> None:
        """Lock an open file without waiting. Raises `BlockingIOError` where somebody else has it, else OSError."""
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(error.errno, error.strerror) from error
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
else:
    import fcntl

    def lock(descriptor: int) -> None:
        """Lock an open file without waiting. Raises `BlockingIOError` where somebody else has it, else OSError."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
