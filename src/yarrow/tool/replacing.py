"""Puts new content into a file so that at every moment it is the old one or the new one, and stays the same file."""

import os
import stat
from contextlib import suppress
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Write `data` to the real path of a regular file or of none, making its parents.

    Raises OSError, with the old content in place.

    A new file is written beside it, forced to the disk and renamed, with the mode, owner and extended attributes
    of the old one. Where that would make another file of it (it has several names, or its owner or its directory
    is not ours to give) it is written in place.
    """
    try:
        old = path.stat()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        _rename_over(path, data, None)
        return
    if old.st_nlink > 1 or not os.access(path.parent, os.W_OK | os.X_OK):
        _write_in_place(path, data)
        return
    try:
        _rename_over(path, data, old)
    except _ForeignOwnerError:
        _write_in_place(path, data)


class _ForeignOwnerError(Exception):
    """The new file could not be given to the owner of the old one."""


def _rename_over(path: Path, data: bytes, old: os.stat_result | None) -> None:
    # A new file gets its mode from the umask. One that takes another's place is private until it has its mode.
    beside = path.with_name(f".yarrow-{os.urandom(8).hex()}.tmp")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600 if old else 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if old is not None:
                _take_over(descriptor, path, old)
            os.fsync(descriptor)
        beside.replace(path)
    except BaseException:  # also an interrupt: no temporary file stays behind
        beside.unlink(missing_ok=True)
        raise


def _take_over(descriptor: int, path: Path, old: os.stat_result) -> None:
    """Give an open new file the owner, mode and extended attributes (access lists among them) of the old one."""
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except PermissionError as error:
            raise _ForeignOwnerError from error
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
    if hasattr(os, "listxattr"):
        with suppress(OSError):
            for name in os.listxattr(path):
                os.setxattr(descriptor, name, os.getxattr(path, name))


def _write_in_place(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
