"""A file that is to be changed, held by its open directory: whatever its path becomes meanwhile, it stays this one."""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from yarrow.platform import system
from yarrow.policy.git_write_protection import has_git_name
from yarrow.policy.workspace import READ_FLAGS, Refused, Workspace
from yarrow.tool.atomic_replace import replace_file
from yarrow.tool.base import ToolFailed

MAX_CHANGED_BYTES = 33_554_432
"""The largest file that is edited or replaced; 32 MiB."""
_FileVersion: TypeAlias = tuple[int, int, int]
"""Which file it is, its size and when it was changed: other content shows in one of them."""


@contextmanager
def open_writable(path: Path, workspace: Workspace) -> Generator["WritableFile | ToolFailed"]:
    """Open what may be written, or say why it may not. Raises OSError."""
    target = WritableFile(path, workspace)
    try:
        yield target.open(make=False) or target
    finally:
        target.close()


class WritableFile:
    """One file, which may not be there yet."""

    def __init__(self, path: Path, workspace: Workspace) -> None:
        self._path = path
        self._workspace = workspace
        self._directory: int | None = None
        self._name = ""
        self._version: _FileVersion | None = None
        self._old: bytes | None = None

    def open(self, *, make: bool) -> ToolFailed | None:
        """Open the file's directory, made if `make` says so; return why it may not be. Raises OSError."""
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
        """Return what the file holds, None when it can be made, or why it cannot be changed. Raises OSError."""
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
        """Put new content into the file; directories that are missing are made. Raises OSError.

        Returns False, and changes nothing, when it is not any more what was read.
        """
        if self._directory is None and (failed := self.open(make=True)):
            raise PermissionError(errno.EACCES, failed.text)
        if self._directory is None or self._read_version() != self._version:
            return False
        replace_file(self._directory, self._name, data)
        # A command that ended before the rename was judged without this file, which may complete a git directory.
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
        """Give back the directory."""
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None

    def _file_above(self) -> Path:
        """Return the file in the place of a directory."""
        return next(parent for parent in self._path.parents if self._workspace.real(parent).exists())

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
                f"{self._path} has {status.st_size:,} bytes; the most is {MAX_CHANGED_BYTES:,}. Use bash."
            )
        return None


def _get_version(status: os.stat_result) -> _FileVersion:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read_all(descriptor: int) -> bytes:
    pieces: list[bytes] = []
    while piece := os.read(descriptor, MAX_CHANGED_BYTES):
        pieces.append(piece)
    return b"".join(pieces)
