"""Puts new content into a file so that at every moment it is the old one or the new one, and stays the same file."""

import os
import stat
from contextlib import suppress
from io import FileIO

from yarrow.platform import system

_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def replace_file(directory: int, name: str, data: bytes) -> None:
    """Write `data` to a regular file of an open directory, or to none of that name. No link is followed.

    Raises OSError, with the old content in place.

    A new file is written beside it, forced to the disk and renamed, with the mode, owner and extended attributes
    of the old one. Where that would make another file of it (it has several names, or its owner or its directory
    is not ours to give) it is written in place.
    """
    try:
        old = system.stat_at(directory, name)
    except FileNotFoundError:
        _rename_over(directory, name, data, old=None)
        return
    if old.st_nlink > 1 or not system.can_write_at(directory, "."):
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
    descriptor = system.open_at(directory, beside, _CREATE_FLAGS, mode=0o600 if old else 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if old is not None:
                _copy_metadata(descriptor, directory, name, old=old)
            elif system.is_root():  # commands, and the user, would not be able to change what root made
                system.copy_owner(descriptor, system.stat_at(directory, "."))
            system.sync(descriptor)
        system.replace_at(directory, beside, name)
    except BaseException:  # also an interrupt: no temporary file stays behind
        with suppress(FileNotFoundError):
            system.unlink_at(directory, beside)
        raise


def _copy_metadata(descriptor: int, directory: int, name: str, *, old: os.stat_result) -> None:
    """Give an open new file the owner, mode and extended attributes (access lists among them) of the old one."""
    try:
        system.copy_owner(descriptor, old)
    except PermissionError as error:
        raise _ForeignOwnerError from error
    system.set_mode(descriptor, stat.S_IMODE(old.st_mode))
    with suppress(OSError):
        _copy_attributes(descriptor, directory, name)


def _copy_attributes(descriptor: int, directory: int, name: str) -> None:
    source = system.open_at(directory, name, os.O_RDONLY | system.NONBLOCK)
    try:
        system.copy_attributes(source, descriptor)
    finally:
        os.close(source)


def _write_in_place(directory: int, name: str, data: bytes) -> None:
    """Write over a file. What makes it longer is written first, for that is where a full disk refuses."""
    with os.fdopen(system.open_at(directory, name, os.O_RDWR), "r+b", buffering=0) as file:
        old = file.read()
        try:
            _write_at(file, len(old), data[len(old) :])
            _write_at(file, 0, data[: len(old)])
            file.truncate(len(data))
            system.sync(file.fileno())
        except OSError:
            with suppress(OSError):
                _write_at(file, 0, old)
                file.truncate(len(old))
            raise


def _write_at(file: FileIO, at: int, data: bytes) -> None:
    file.seek(at)
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
