"""Git directories made by commands, which later commands may remove: no mount guards them."""

import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from yarrow.policy.sandbox.git_directories import executed_parts, module_directories
from yarrow.policy.sandbox.journal_file import read_records, write_records

MAX_REPOSITORIES = 1_024
"""Maximum git directories remembered; the oldest ones beyond are guarded like the user's own."""
REGISTER_FILE = "made"
"""Name of the register in the journal directory, whose entries end in `.json`."""
MAX_FILE_BYTES = 8_388_608
"""Maximum bytes read of the register; a larger one counts as empty."""
Identity = tuple[int, int]
"""Device and inode."""


class NewRepository(Struct, frozen=True):
    """A git directory or `.git` file as a command left it."""

    path: Path
    identity: Identity


class RepositoryRegister:
    """Git directories made by commands of this process and earlier ones."""

    def __init__(self) -> None:
        self._known: dict[Path, Identity] = {}
        self._directory: Path | None = None
        self._lock = threading.Lock()

    def open(self, directory: Path) -> None:
        """Read what earlier processes recorded in a directory, and record there from now on."""
        with self._lock:
            if directory != self._directory:
                self._directory = directory
                found = read_records(directory / REGISTER_FILE, list[NewRepository], MAX_FILE_BYTES)
                read = {made.path: made.identity for made in found}
                self._known = self._known | read  # a new dictionary, since others may be reading the old one

    def add(self, paths: Iterable[Path]) -> None:
        """Record what a command made."""
        made = {path: identity for path in paths if (identity := _identity(path)) is not None}
        if made.items() <= self._known.items():
            return
        with self._lock:
            known = {path: one for path, one in self._known.items() if path not in made} | made
            self._known = dict(list(known.items())[-MAX_REPOSITORIES:])
            if self._directory is not None:
                with suppress(OSError):  # the next process guards them
                    records = [NewRepository(*one) for one in self._known.items()]
                    write_records(self._directory / REGISTER_FILE, records)

    def existing(self, roots: Sequence[Path]) -> tuple[Path, ...]:
        """Return the paths below some roots that commands made and that have not been replaced since."""
        return tuple(
            path for path in self._known if any(path.is_relative_to(root) for root in roots) and self.has(path)
        )

    def has(self, path: Path) -> bool:
        """Return whether a command made what is at a path."""
        known = self._known.get(path)
        return known is not None and known == _identity(path)


REGISTER = RepositoryRegister()
"""Git directories made by commands of all sessions."""


def is_removable(git: Path, roots: Sequence[Path]) -> bool:
    """Return whether a git directory or `.git` file may be removed: a command made it, and git executes nothing in it.

    While a command runs, it can be changed as in the command that made it, and is judged afterwards in the same way.
    """
    is_of_root = git in roots or (git.name == ".git" and git.parent in roots)
    if is_of_root or not REGISTER.has(git) or git.is_symlink():
        return False
    return git.is_file() or all(_is_harmless(directory, roots) for directory in (git, *module_directories(git)))


def _is_harmless(directory: Path, roots: Sequence[Path]) -> bool:
    return not any(part.path.is_relative_to(directory) for part in executed_parts(directory, roots))


def _identity(path: Path) -> Identity | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
