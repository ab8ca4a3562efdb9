"""Paths that must stay absent: anything a command creates there is quarantined afterwards."""

import hashlib
import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from yarrow.platform import system
from yarrow.policy.openat import PATH_CHANGED_ERRORS, open_directory, openat_beneath
from yarrow.policy.sandbox.quarantine import Quarantine, QuarantineEntry

READ_BYTES = 1_048_576
"""Bytes of a file that count for its identity."""
GUARDED_REASON = "it is read by git or Yarrow to learn what to run"
BARE_ROOT_REASON = "it would make the workspace itself a git directory"
_DIRECTORY = os.O_RDONLY | system.DIRECTORY


class GuardedPath(Struct, frozen=True):
    """A path that is absent, held by the identity of the directory above it, which a command can replace."""

    base: Path
    """The nearest directory above that exists."""
    below: Path
    """The path from there on."""
    identity: tuple[int, int] | None
    """Device and number of the base; None when it could not be looked at."""
    first: str = ""
    """Identity of what the first name of `below` already is, such as a file or a symlink; empty when absent."""

    @classmethod
    def for_path(cls, path: Path) -> "GuardedPath":
        """Return the place of a path that is absent."""
        base = next(above for above in path.parents if above.is_dir() and not above.is_symlink())
        below = path.relative_to(base)
        return cls(base, below, _identity(base), file_signature(base / below.parts[0]) if len(below.parts) > 1 else "")

    @property
    def path(self) -> Path:
        """The absent path."""
        return self.base / self.below

    def quarantine(self, quarantine: Quarantine, *, reason: str = GUARDED_REASON) -> QuarantineEntry | None:
        """Quarantine what came to be there and return its entry; None for nothing.

        An unexpected error becomes an entry that names it, so that whatever else was planted is still quarantined.
        """
        if self.identity is None:
            return None
        try:
            return self._quarantine_in_base(quarantine, reason)
        except Exception as error:  # noqa: BLE001 (a command may have provoked it, to keep what it planted elsewhere)
            return failed_entry(self.path, f"{reason}; it could not be moved: {type(error).__name__}")

    def _quarantine_in_base(self, quarantine: Quarantine, reason: str) -> QuarantineEntry | None:
        try:
            directory = open_directory(Path("/"), self.base)
        except OSError:
            return None
        try:
            status = os.fstat(directory)
            if (status.st_dev, status.st_ino) != self.identity:
                return None
            return self._quarantine_below(directory, quarantine, reason)
        finally:
            os.close(directory)

    def _quarantine_below(self, base: int, quarantine: Quarantine, reason: str) -> QuarantineEntry | None:
        first = self.below.parts[0]
        if self.first and file_signature(self.base / first) == self.first:
            return None  # as before the command, so nothing came to be below it
        *above, name = self.below.parts
        try:
            directory = openat_beneath(base, tuple(above), _DIRECTORY)
        except OSError as error:
            if error.errno not in PATH_CHANGED_ERRORS:
                return None
            # A symlink on the way leads to something as well as a directory does; nothing of it was there before.
            return quarantine.take(base, first, self.base / first, reason=reason)
        try:
            return quarantine.take(directory, name, self.path, reason=reason)
        finally:
            os.close(directory)


class PathGuard(Struct, frozen=True):
    """What must not come to be while a command runs."""

    places: tuple[GuardedPath, ...]
    roots: tuple[Path, ...]
    """Directories that must not become a git directory themselves, whose `config` git would obey."""

    @classmethod
    def for_paths(cls, missing: Iterable[Path], roots: Iterable[Path]) -> "PathGuard":
        """Return what to watch before a command runs; a root that is a git directory already is the user's."""
        places = tuple(GuardedPath.for_path(path) for path in dict.fromkeys(missing))
        return cls(places, tuple(root for root in roots if root.is_dir() and not os.path.lexists(root / "HEAD")))

    def quarantine(self, quarantine: Quarantine) -> list[QuarantineEntry]:
        """Quarantine what came to be, and return the entries."""
        taken = [place.quarantine(quarantine) for place in self.places]
        heads = (GuardedPath.for_path(root / "HEAD") for root in self.roots if _is_bare(root))
        taken += [head.quarantine(quarantine, reason=BARE_ROOT_REASON) for head in heads]
        return [entry for entry in taken if entry is not None]


def failed_entry(path: Path, reason: str) -> QuarantineEntry:
    """Return the entry of a path that could not be quarantined."""
    return QuarantineEntry(0, path, "", time.time(), reason, 0, path)


def file_signature(path: Path) -> str:
    """Return what identifies a file or symlink: device, number, kind and content; empty for nothing.

    The number alone does not: file systems give that of a removed file to the next one.
    """
    try:
        status = path.lstat()
        kind = stat.S_IFMT(status.st_mode)
        content = b""
        if stat.S_ISLNK(kind):
            content = os.fsencode(path.readlink())
        elif stat.S_ISREG(kind):
            descriptor = os.open(path, os.O_RDONLY | system.NOFOLLOW | system.BASE_FLAGS)
            try:
                content = os.read(descriptor, READ_BYTES)
            finally:
                os.close(descriptor)
    except OSError:
        return "" if not os.path.lexists(path) else "unreadable"
    return f"{status.st_dev}-{status.st_ino}-{kind}-{hashlib.sha256(content).hexdigest()}"


def _is_bare(root: Path) -> bool:
    return (root / "HEAD").is_file() and (root / "objects").is_dir() and (root / "refs").is_dir()


def _identity(directory: Path) -> tuple[int, int] | None:
    try:
        status = directory.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
