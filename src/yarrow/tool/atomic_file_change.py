"""Change of one file by `write` or `edit`: planned completely, then applied atomically."""

import errno
import os
import stat
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from yarrow.platform import system
from yarrow.policy.git_write_protection import has_git_name
from yarrow.policy.refusal import Refused
from yarrow.policy.symlink_free_open import READ_FLAGS
from yarrow.policy.workspace import Workspace
from yarrow.tool.base import Done, Result, ToolContext, ToolFailed
from yarrow.tool.diff import count_changes
from yarrow.tool.paths import check_home, describe_os_error, locate
from yarrow.tool.result_limits import limit_diff

MAX_CHANGED_BYTES = 33_554_432
"""Maximum bytes of a file to edit or replace; 32 MiB."""
_FileVersion: TypeAlias = tuple[int, int, int]
"""Inode, size and mtime in nanoseconds of a file; a change of its content changes at least one of them."""


@contextmanager
def open_writable(path: Path, workspace: Workspace) -> Generator["WritableFile | ToolFailed"]:
    """Open a file for writing, or return why it may not be written. Raises OSError."""
    target = WritableFile(path, workspace)
    try:
        yield target.open(make=False) or target
    finally:
        target.close()


class WritableFile:
    """A file to write, which may not exist yet."""

    def __init__(self, path: Path, workspace: Workspace) -> None:
        self._path = path
        self._workspace = workspace
        self._directory: int | None = None
        self._name = ""
        self._version: _FileVersion | None = None
        self._old: bytes | None = None

    def open(self, *, make: bool) -> ToolFailed | None:
        """Open the parent directory, created if `make` is true; return why it may not be opened. Raises OSError."""
        try:
            found = self._workspace.open_parent(self._path, make=make)
        except FileNotFoundError:
            if make:
                raise
            return None
        except NotADirectoryError:
            return ToolFailed(f"{self._file_above()} is a file, not a directory.")
        if isinstance(found, Refused):
            return ToolFailed(found.text)
        self._directory, self._name = found
        return None

    def read(self) -> bytes | None | ToolFailed:
        """Return the content, None if the file does not exist, or why it cannot be changed. Raises OSError."""
        if self._directory is None:
            return None
        try:
            descriptor = system.open_at(self._directory, self._name or ".", READ_FLAGS)
        except FileNotFoundError:
            return None
        try:
            status = os.fstat(descriptor)
            self._version = _get_version(status)
            if unfit := self._find_refusal(status, self._directory):
                return unfit
            self._old = _read_all(descriptor)
            return self._old
        finally:
            os.close(descriptor)

    def replace(self, data: bytes) -> bool:
        """Replace the content of the file; missing directories are created. Raises OSError.

        Returns False without a change if the file was modified since it was read.
        """
        if self._directory is None and (failed := self.open(make=True)):
            raise PermissionError(errno.EACCES, failed.text)
        if self._directory is None or self._read_version() != self._version:
            return False
        replace_file(self._directory, self._name, data)
        # A command that ended before the rename was checked without this file, which may complete a git directory.
        if has_git_name(self._path) and isinstance(self._workspace.resolve_write(self._path), Refused):
            self._undo(self._directory)
            return False
        return True

    def _undo(self, directory: int) -> None:
        if self._old is None:
            system.unlink_at(directory, self._name)
        else:
            replace_file(directory, self._name, self._old)

    def close(self) -> None:
        """Close the directory."""
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None

    def _file_above(self) -> Path:
        """Return the file that occupies the path of a parent directory."""
        return next(parent for parent in self._path.parents if self._workspace.realpath(parent).exists())

    def _read_version(self) -> _FileVersion | None:
        if self._directory is None:
            return None
        try:
            return _get_version(system.stat_at(self._directory, self._name))
        except FileNotFoundError:
            return None

    def _find_refusal(self, status: os.stat_result, directory: int) -> ToolFailed | None:
        if not stat.S_ISREG(status.st_mode):
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            return ToolFailed(f"{self._path} is {kind}.")
        if not system.can_write_at(directory, self._name):
            return ToolFailed(f"{self._path} is read-only. Change its mode first, if the user agrees.")
        if status.st_size > MAX_CHANGED_BYTES:
            return ToolFailed(
                f"{self._path} has {status.st_size:,} bytes; the limit is {MAX_CHANGED_BYTES:,}. Use bash."
            )
        return None


def _get_version(status: os.stat_result) -> _FileVersion:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read_all(descriptor: int) -> bytes:
    pieces: list[bytes] = []
    while piece := os.read(descriptor, MAX_CHANGED_BYTES):
        pieces.append(piece)
    return b"".join(pieces)


class FileChange(Struct, frozen=True):
    """New content of a file, with the messages for after (`done`) and before (`planned`) the change."""

    data: bytes
    done: str
    planned: str
    diff: str


PlannedChange: TypeAlias = FileChange | Done | ToolFailed
"""The change to make, or the result if there is nothing to do or it cannot be done."""
ChangePlanner: TypeAlias = Callable[[bytes | None], PlannedChange]
"""Plans the change of a file from its content; None for a missing file."""


def apply_change(path: str, context: ToolContext, stop: threading.Event, *, plan: ChangePlanner) -> Result:
    """Plan the change of a file and apply it, unless `stop` is set in the meantime."""

    def make(target: WritableFile, change: FileChange) -> Result:
        if not stop.is_set() and not target.replace(change.data):
            return ToolFailed(f"{path} was not changed: another program changed it at the same time. Read it again.")
        return Done(f"{change.done} {_format_counts(change.diff)}.", limit_diff(change.diff))

    return _plan_change(path, context, plan, then=make)


def preview_change(path: str, context: ToolContext, _stop: threading.Event, *, plan: ChangePlanner) -> Result:
    """Plan the change of a file like `apply_change`, and describe it instead."""

    def tell(_target: WritableFile, change: FileChange) -> Result:
        diff = limit_diff(change.diff)
        return Done(f"{change.planned} {_format_counts(diff)}:\n{diff}", diff)

    return _plan_change(path, context, plan, then=tell)


def _plan_change(
    path: str, context: ToolContext, plan: ChangePlanner, *, then: Callable[[WritableFile, FileChange], Result]
) -> Result:
    if why := check_home(path, context.cwd):
        return ToolFailed(why)
    if path.endswith(("/", "/.")):  # lost in a Path
        return ToolFailed(f"{path} is a directory path. Use the path of a file.")
    try:
        with open_writable(locate(path, context.cwd), context.workspace) as target:
            if isinstance(target, ToolFailed):
                return target
            old = target.read()
            planned = old if isinstance(old, ToolFailed) else plan(old)
            return then(target, planned) if isinstance(planned, FileChange) else planned
    except OSError as error:
        return ToolFailed(describe_os_error(error, path))


def _format_counts(diff: str) -> str:
    added, removed = count_changes(diff)
    return f"(+{added} -{removed})"


_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def replace_file(directory: int, name: str, data: bytes) -> None:
    """Write `data` to a regular or new file of an open directory. Follows no symlinks.

    Raises OSError; the old content is then still in place.

    A new file is written beside it, synced to disk and renamed, with the mode, owner and extended attributes of the old
    one. If a rename would change more than the content (hard links, an owner we cannot set, or a directory we cannot
    write to), the file is written in place.
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
    """The new file could not be given the owner of the old one."""


def _rename_over(directory: int, name: str, data: bytes, *, old: os.stat_result | None) -> None:
    # A new file gets its mode from the umask. A replacement is private until it has the mode of the old file.
    beside = f".yarrow-{os.urandom(8).hex()}.tmp"
    descriptor = system.open_at(directory, beside, _CREATE_FLAGS, mode=0o600 if old else 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if old is not None:
                _copy_metadata(descriptor, directory, name, old=old)
            elif system.is_root():  # otherwise the user and commands could not change a file made by root
                system.copy_owner(descriptor, system.stat_at(directory, "."))
            system.sync(descriptor)
        system.replace_at(directory, beside, name)
    except BaseException:  # also an interrupt: leave no temporary file behind
        with suppress(FileNotFoundError):
            system.unlink_at(directory, beside)
        raise


def _copy_metadata(descriptor: int, directory: int, name: str, *, old: os.stat_result) -> None:
    """Copy the owner, mode and extended attributes (such as access lists) of the old file to an open new one."""
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
    """Overwrite a file. Bytes past the old end are written first, because a full disk rejects those."""
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
