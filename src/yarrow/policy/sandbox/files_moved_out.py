"""Files that a command moved from the workspace to the session's own directories, which are deleted with it."""

import os
import re
import stat
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from functools import partial
from itertools import takewhile
from pathlib import Path

from msgspec import Struct

from yarrow.policy.sandbox.quarantine import Quarantine, QuarantineEntry
from yarrow.policy.sandbox.sandbox_spec import SandboxSpec
from yarrow.policy.sandbox.session_home import session_places
from yarrow.policy.symlink_free_open import open_directory

MAX_FILES = 300_000
"""Maximum workspace files, nearest first, that are recognized in another place."""
MAX_ENTRIES = 50_000
"""Maximum files in a directory of the session, nearest first, that are searched for moved ones."""
MAX_NAMED = 10
"""Maximum moved files and directories that are copied and named; the rest are counted."""
CLOCK_SLACK_NS = 20_000_000
"""Nanoseconds by which a file's timestamp may lag behind the clock."""
PACKAGE_DIRECTORIES = frozenset({"node_modules", "site-packages", "dist-packages", "gems"})
"""Directories of installed packages, whose files often have old times."""
_MOVING = re.compile(r"mv|move|rename", re.IGNORECASE)

FileState = tuple[int, int]
"""Size and modification time, which a move to another mount preserves."""


class MovedFile(Struct, frozen=True):
    """A file or directory that is no longer in the workspace."""

    path: Path
    """Its path in the workspace."""
    seen_at: Path
    """Path at which commands see it now."""
    entry: QuarantineEntry | None
    """Quarantine entry with a copy; None if none could be made."""


class MovedFiles(Struct, frozen=True):
    """Files and directories that one command moved out of the workspace."""

    named: tuple[MovedFile, ...] = ()
    more: int = 0
    """Number of further files and directories."""
    unknown: int = 0
    """Number of files that may be moved ones, since the workspace has more than `MAX_FILES`."""


class WorkspaceFiles(Struct, frozen=True):
    """The workspace files before a command."""

    spec: SandboxSpec
    files: dict[str, FileState]
    """State of each file if the text of the command mentions moving; empty for other commands."""
    is_partial: bool
    """True if the workspace has more files than `MAX_FILES`."""
    begun_ns: int

    @classmethod
    def snapshot(cls, spec: SandboxSpec, command: str) -> "WorkspaceFiles":
        """Take a snapshot before a command; commands that do not mention moving cost nothing."""
        files: dict[str, FileState] = {}
        is_partial = False
        for root in spec.writable if _MOVING.search(command) else ():
            found = list(_walk(root, MAX_FILES - len(files) + 1))
            is_partial = is_partial or len(found) + len(files) > MAX_FILES
            files |= {entry: (status.st_size, status.st_mtime_ns) for entry, status in found}
        return cls(spec, files, is_partial, time.time_ns() - CLOCK_SLACK_NS)

    def copy_moved(self, quarantine: Quarantine, missing: Sequence[str], taken: Iterable[Path] = ()) -> MovedFiles:
        """Copy moved files to the quarantine, and return them.

        `missing` are the files that the workspace lost, of which the quarantine has already received those in `taken`.
        """
        moved: dict[Path, Path] = {}
        search = _Search(missing, frozenset(map(str, taken)))
        unknown = 0
        for place, _ in session_places(self.spec) if self.files or self.is_partial or missing else ():
            for origin, copy in self._match(place, search):
                if origin is None:
                    unknown += self.is_partial
                else:
                    moved.setdefault(*self._whole_directory(origin, copy, place))
        found: list[MovedFile] = []
        for path, copy in list(moved.items())[:MAX_NAMED]:
            seen_at = self._seen_at(copy)
            found.append(MovedFile(path, seen_at, _store_copy(copy, path, quarantine, seen_at=seen_at)))
        return MovedFiles(tuple(found), len(moved) - len(found), unknown)

    def _seen_at(self, copy: Path) -> Path:
        places = session_places(self.spec)
        return next(seen / copy.relative_to(place) for place, seen in places if copy.is_relative_to(place))

    def _match(self, place: Path, search: "_Search") -> Iterator[tuple[Path | None, Path]]:
        """Yield the files that arrived in a directory with an older time, each with the missing file it was.

        The missing file is None if none is known with that size and time, or with that name.
        """
        arrived = [
            (Path(path), (status.st_size, status.st_mtime_ns))
            for path, status in _walk(place, MAX_ENTRIES)
            if status.st_mtime_ns < self.begun_ns <= status.st_ctime_ns
        ]
        if not arrived:
            return
        states = {state for _, state in arrived}
        by_state: defaultdict[FileState, list[Path]] = defaultdict(list)
        for name, state in self.files.items():
            if state in states and not os.path.lexists(name) and search.may_be_moved(name):
                by_state[state].append(Path(name))
        by_name: defaultdict[str, list[Path]] = defaultdict(list)
        for path in search.find({copy.name for copy, _ in arrived if not _is_hidden(copy.relative_to(place))}):
            if path not in self.files:
                by_name[path.rpartition("/")[2]].append(Path(path))
        for copy, state in arrived:
            origins = by_state[state] or ([] if _is_hidden(copy.relative_to(place)) else by_name[copy.name])
            origin = max(origins, key=partial(_common_parts, copy), default=None)
            if origin is not None:
                origins.remove(origin)
            yield origin, copy

    def _whole_directory(self, origin: Path, copy: Path, place: Path) -> tuple[Path, Path]:
        """Return the largest directory that was moved as a whole with a file, otherwise the file."""
        while (
            origin.name == copy.name
            and origin.parent not in self.spec.writable
            and copy.parent != place
            and not os.path.lexists(origin.parent)
            and copy.parent.lstat().st_mtime_ns < self.begun_ns  # its time was preserved
        ):
            origin, copy = origin.parent, copy.parent
        return origin, copy


class _Search(Struct, frozen=True):
    """Files that may have been moved out of the workspace."""

    missing: Sequence[str]
    """Paths that are gone."""
    taken: frozenset[str]
    """Paths whose contents the quarantine has received."""

    def may_be_moved(self, path: str) -> bool:
        """Return whether a missing file is not in the quarantine."""
        return not self.taken or self.taken.isdisjoint((path, *map(str, Path(path).parents)))

    def find(self, names: Set[str]) -> list[str]:
        """Return the missing files with these names."""
        return [path for path in self.missing if path.rpartition("/")[2] in names and self.may_be_moved(path)]


def _is_hidden(path: Path) -> bool:
    """Return whether a path is in a hidden directory or an installed package."""
    return any(name.startswith(".") or name in PACKAGE_DIRECTORIES for name in path.parts[:-1])


def _common_parts(one: Path, other: Path) -> int:
    """Return how many names two paths share, counted from the end."""
    pairs = zip(reversed(one.parts), reversed(other.parts), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def describe_moved(moved: MovedFiles, name: Callable[[Path], str]) -> str:
    """Return a sentence about moved files, empty if there are none; `name` formats a path."""
    kept = [
        f"{name(one.path)} (now {one.seen_at}, copy {one.entry.number})" for one in moved.named if one.entry is not None
    ]
    lost = [f"{name(one.path)} (now {one.seen_at})" for one in moved.named if one.entry is None]
    told: list[str] = []
    if kept:
        told.append(
            f"{', '.join(kept)}: moved to a directory that is deleted when the session ends; the quarantine has a "
            "copy. To restore it, run `yarrow sandbox quarantine restore N`"
        )
    if lost or moved.more:
        names = ", ".join([*lost, *([f"{moved.more} more"] if moved.more else [])])
        told.append(
            f"{names}: moved to a directory that is deleted when the session ends, without a copy: move it back now"
        )
    if moved.unknown:
        told.append(
            f"{moved.unknown:,} files in a directory that is deleted when the session ends may be from the workspace, "
            f"which has more than {MAX_FILES:,} files to compare: move them back now"
        )
    return "; ".join(told)


def _store_copy(copy: Path, path: Path, quarantine: Quarantine, *, seen_at: Path) -> QuarantineEntry | None:
    reason = f"a command moved it to {seen_at}, which is deleted with the session"
    try:
        directory = open_directory(Path("/"), copy.parent)
    except OSError:
        return None
    try:
        return quarantine.store_copy(directory, copy.name, path, reason=reason)
    except OSError:
        return None
    finally:
        os.close(directory)


def _walk(root: Path, most: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield files and symlinks below a directory, nearest first, except those in `.git`."""
    waiting = deque([str(root)])
    while waiting and most > 0:
        with suppress(OSError), os.scandir(waiting.popleft()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != ".git":
                        waiting.append(entry.path)
                    continue
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                    yield entry.path, status
                    most -= 1
                    if most <= 0:
                        return
