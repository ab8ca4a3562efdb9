"""Paths that must stay absent: anything a command creates there is quarantined afterwards."""

import hashlib
import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from yarrow.platform import system
from yarrow.policy.sandbox.quarantine import Quarantine, QuarantineEntry
from yarrow.policy.symlink_free_open import PATH_CHANGED_ERRORS, open_directory, openat_beneath

READ_BYTES = 1_048_576
"""Maximum bytes of a file that count for its identity."""
GUARDED_REASON = "it is read by git or Yarrow to learn what to run"
BARE_ROOT_REASON = "it would make the workspace itself a git directory"
LINKED_ROOT_REASON = "as a symlink it would keep later commands from running in a sandbox"
_DIRECTORY = os.O_RDONLY | system.DIRECTORY


class GuardedPath(Struct, frozen=True):
    """An absent path, anchored by the identity of its nearest existing parent, which a command can replace."""

    base: Path
    """The nearest existing parent directory."""
    below: Path
    """The rest of the path, relative to `base`."""
    identity: tuple[int, int] | None
    """Device and inode of the base; None if they could not be determined."""
    first: str = ""
    """Identity of the first name of `below`, if it exists, such as a file or symlink; empty if it is absent."""

    @classmethod
    def for_path(cls, path: Path) -> "GuardedPath":
        """Return the guard of an absent path."""
        base = next(above for above in path.parents if above.is_dir() and not above.is_symlink())
        below = path.relative_to(base)
        return cls(base, below, _identity(base), file_signature(base / below.parts[0]) if len(below.parts) > 1 else "")

    @property
    def path(self) -> Path:
        """The absent path."""
        return self.base / self.below

    def quarantine(self, quarantine: Quarantine, *, reason: str = GUARDED_REASON) -> QuarantineEntry | None:
        """Quarantine what was created at the path and return its entry; None if nothing was.

        An unexpected error becomes an entry that names it, so that everything else that was planted is still
        quarantined.
        """
        if self.identity is None:
            return None
        try:
            return self._quarantine_in_base(quarantine, reason)
        except Exception as error:  # noqa: BLE001 (a command may have provoked it to keep what it planted elsewhere)
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
            return None  # unchanged, so nothing was created below it
        *above, name = self.below.parts
        try:
            directory = openat_beneath(base, tuple(above), _DIRECTORY)
        except OSError as error:
            if error.errno not in PATH_CHANGED_ERRORS:
                return None
            # A symlink on the way leads somewhere just as a directory does, and nothing of it existed before.
            return quarantine.take(base, first, self.base / first, reason=reason)
        try:
            return quarantine.take(directory, name, self.path, reason=reason)
        finally:
            os.close(directory)


class PathGuard(Struct, frozen=True):
    """Paths that must not be created while a command runs."""

    places: tuple[GuardedPath, ...]
    roots: tuple[Path, ...]
    """Directories that must not become git directories themselves, because git would obey their `config`."""
    without_git: tuple[Path, ...] = ()
    """Directories that had no `.git`: as a symlink, it would keep later commands out of a sandbox."""

    @classmethod
    def for_paths(cls, missing: Iterable[Path], roots: Iterable[Path]) -> "PathGuard":
        """Return the guard to create before a command; a root that is already a git directory is the user's."""
        places = tuple(GuardedPath.for_path(path) for path in dict.fromkeys(missing))
        roots = tuple(root for root in roots if root.is_dir())
        return cls(places, _without(roots, "HEAD"), _without(roots, ".git"))

    def quarantine(self, quarantine: Quarantine) -> list[QuarantineEntry]:
        """Quarantine what was created, and return the entries."""
        taken = [place.quarantine(quarantine) for place in self.places]
        heads = (GuardedPath.for_path(root / "HEAD") for root in self.roots if _is_bare(root))
        taken += [head.quarantine(quarantine, reason=BARE_ROOT_REASON) for head in heads]
        links = (GuardedPath.for_path(path) for root in self.without_git if (path := root / ".git").is_symlink())
        taken += [link.quarantine(quarantine, reason=LINKED_ROOT_REASON) for link in links]
        return [entry for entry in taken if entry is not None]


def failed_entry(path: Path, reason: str) -> QuarantineEntry:
    """Return the entry of a path that could not be quarantined."""
    return QuarantineEntry(0, path, "", time.time(), reason, 0, path)


def file_signature(path: Path) -> str:
    """Return the identity of a file or symlink: device, inode, kind and content; empty if it does not exist.

    The inode alone is not enough: file systems reuse that of a removed file for the next one.
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


def _without(roots: Iterable[Path], name: str) -> tuple[Path, ...]:
    return tuple(root for root in roots if not os.path.lexists(root / name))


def _is_bare(root: Path) -> bool:
    return (root / "HEAD").is_file() and (root / "objects").is_dir() and (root / "refs").is_dir()


def _identity(directory: Path) -> tuple[int, int] | None:
    try:
        status = directory.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
