"""Puts new content into a file so that at every moment it is the old one or the new one, and stays the same file."""

import os
import stat
from contextlib import suppress

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def replace_file(directory: int, name: str, data: bytes) -> None:
    """Write `data` to a regular file of an open directory, or to none of that name. No link is followed.

    Raises OSError, with the old content in place.

    A new file is written beside it, forced to the disk and renamed, with the mode, owner and extended attributes
    of the old one. Where that would make another file of it (it has several names, or its owner or its directory
    is not ours to give) it is written in place.
    """
    try:
        old = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        _rename_over(directory, name, data, old=None)
        return
    if old.st_nlink > 1 or not os.access(".", os.W_OK | os.X_OK, dir_fd=directory):
        _write_in_place(directory, name, data)
        return
    try:
        _rename_over(directory, name, data, old=old)
    except _ForeignOwnerError:
        _write_in_place(directory, name, data)


class _ForeignOwnerError(Exception):
    """The new file could not be given to the owner of the old one."""


def _rename_over(directory: int, name: str, data: bytes, *, old: os.stat_result | None) -> None:
    # A new file gets its mode from the umask. One that takes another's place is private until it has its mode.
    beside = f".yarrow-{os.urandom(8).hex()}.tmp"
    descriptor = os.open(beside, _NEW, 0o600 if old else 0o666, dir_fd=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if old is not None:
                _take_over(descriptor, directory, name, old=old)
            os.fsync(descriptor)
        os.replace(beside, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:  # also an interrupt: no temporary file stays behind
        with suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=directory)
        raise


def _take_over(descriptor: int, directory: int, name: str, *, old: os.stat_result) -> None:
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
            _copy_attributes(descriptor, directory, name)


def _copy_attributes(descriptor: int, directory: int, name: str) -> None:
    source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    try:
        for attribute in os.listxattr(source):
            os.setxattr(descriptor, attribute, os.getxattr(source, attribute))
    finally:
        os.close(source)


def _write_in_place(directory: int, name: str, data: bytes) -> None:
    with os.fdopen(os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory), "r+b") as file:
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
