"""Cached listings of workspace directories, reduced to what a sandbox must know."""

import os
import re
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from yarrow.policy.auto_executed_files import EXECUTED_NAMES
from yarrow.policy.sandbox.directory_watches import DirectoryState, watches
from yarrow.policy.secret_names import ENV_FILES, SecretFiles

MAX_PROTECTED_ENTRIES = 20_000
"""Maximum entries of a workspace within which mounts protect repositories; the baseline covers those beyond."""
MAX_DIRECTORIES = 100_000
"""Maximum directories of a workspace in which secret files are found, nearest first."""
BUILD_DIRECTORIES = frozenset(
    {"node_modules", ".venv", "venv", "__pycache__", "target", "dist", "build", ".tox", ".cache"}
)
MAX_CACHED_DIRECTORIES = 200_000
"""Maximum cached directories; if exceeded, all are read again."""
SETTLED_SECONDS = 2.0
"""Age in seconds below which a change is read again, because another one may not show in the change time."""
NANOSECONDS = 1_000_000_000
HEAD = "HEAD"
GIT_DIRECTORY_SETS = (frozenset({"head", "objects", "refs"}), frozenset({"head", "commondir"}))
"""Sets of lowercase names, each of which makes git accept a directory as a git directory, whatever its own name."""
REMOTE_DIRECTORIES = ("remotes", "branches")
"""Directories in a git directory with remotes outside its configuration; their addresses may make git run a program."""
GIT_DIRECTORY_NAMES = frozenset[str]().union(*GIT_DIRECTORY_SETS)
GIT_NAMES = GIT_DIRECTORY_NAMES | {".git", "config", "config.worktree", "hooks"}
"""Lowercase names that make a git directory, or that git executes or obeys in one."""
_SKIPPED = re.compile(rf"/(?:\.git|{'|'.join(map(re.escape, sorted(BUILD_DIRECTORIES)))})/")


class DirectoryListing(Struct, frozen=True):
    """Contents of a directory."""

    entry_count: int
    """Number of entries."""
    notable: tuple[str, ...]
    """Names of repositories and secret files, and `HEAD` if the directory is itself a repository."""
    subdirectories: tuple[str, ...]
    """Paths of the subdirectories to scan."""
    build_directories: tuple[str, ...] = ()
    """Paths of the other subdirectories, in which only git directories matter."""
    git_names: tuple[str, ...] = ()
    """Names that match `GIT_NAMES` in any case, because a file system may ignore case."""
    executed_names: tuple[str, ...] = ()
    """Names that match `EXECUTED_NAMES` in any case."""
    file_names: str = ""
    """Names of all entries but directories, joined by slashes to save memory."""


class ScanRecord(Struct):
    """Listings of the latest scan that was started with this record."""

    listings: dict[str, DirectoryListing] = {}
    """Listings by directory."""
    executed: dict[str, tuple[str, ...]] = {}
    """Names that match `EXECUTED_NAMES`, by directory."""


_EMPTY = DirectoryListing(0, (), ())

ListDirectory = Callable[[str], DirectoryListing]
"""Returns the listing of a directory. Raises OSError."""

_cache: dict[SecretFiles, dict[str, tuple[DirectoryState, DirectoryListing]]] = {}
"""Cached state and listing of each directory, by `SecretFiles` and path."""


def list_directory(directory: str, secrets: SecretFiles = ENV_FILES) -> DirectoryListing:
    """Return the listing of a directory; empty for a symlink. Raises OSError.

    The directory is not read again while it is the same one and no entry was added, removed or renamed and its
    permissions are unchanged: all of these set its change time, which no program can set otherwise.
    """
    return start_scan(secrets)(directory)


def start_scan(secrets: SecretFiles, record: ScanRecord | None = None) -> ListDirectory:
    """Return a `list_directory` for scans of many directories, as before and after each command.

    It checks each directory only once, so that everything before a command sees the same state of it. `record`
    receives the listings.
    """
    record = record or ScanRecord()
    seen = record.listings = dict[str, DirectoryListing]()
    executed = record.executed = dict[str, tuple[str, ...]]()
    reader = _Reader(secrets)
    known, same, read = reader.known, reader.unchanged, reader.read

    def list_one(directory: str) -> DirectoryListing:
        names = seen.get(directory)
        if names is None:
            before = known.get(directory)
            # If nothing was reported since the directory was read, it is unchanged.
            is_same = before is not None and same.get(directory) == before[0]
            names = seen[directory] = before[1] if before is not None and is_same else read(directory)
            if names.executed_names:
                executed[directory] = names.executed_names
        return names

    return list_one


class _Reader:
    """Reads the directories of one scan that may have changed."""

    def __init__(self, secrets: SecretFiles) -> None:
        self._secrets = secrets
        self._round = watches.begin_round()
        self.unchanged = self._round.unchanged
        """State of directories without a report since they were read."""
        self.known = _cache.setdefault(secrets, {})
        """State and listing from earlier scans."""
        for directory in self._round.changed:
            for others in _cache.values():
                others.pop(directory, None)

    def read(self, directory: str) -> DirectoryListing:
        """Return the listing of a directory, from the cache if its state is the same. Raises OSError."""
        is_watched = self._round.watch(directory)
        status = os.lstat(directory)
        state = (status.st_dev, status.st_ino, status.st_ctime_ns)
        if is_watched:
            self._round.confirm(directory, state)
        before = self.known.get(directory)
        if before is not None and before[0] == state:
            return before[1]
        if not stat.S_ISDIR(status.st_mode):
            return _EMPTY
        names = _read_listing(directory, self._secrets)
        if time.time_ns() - status.st_ctime_ns > SETTLED_SECONDS * NANOSECONDS:
            if len(self.known) >= MAX_CACHED_DIRECTORIES:
                self.known.clear()
            self.known[directory] = (state, names)
        return names


def executed_entries(roots: Sequence[Path], executed: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the paths of a workspace whose names match `EXECUTED_NAMES`, except below build directories."""
    tops = tuple(f"{root}/" for root in roots)
    for directory, names in executed.items():
        if _is_own(path := f"{directory}/", tops):
            for name in names:
                yield path + name


def missing_files(roots: Sequence[Path], before: ScanRecord, after: ScanRecord) -> list[str]:
    """Return the files of a workspace whose names are gone from its directories, except below build directories."""
    tops = tuple(f"{root}/" for root in roots)
    gone, new = list[str](), set[str]()
    changed = [directory for directory, old in before.listings.items() if after.listings.get(directory) is not old]
    changed += [directory for directory in after.listings if directory not in before.listings]
    for directory in changed:
        old, now = before.listings.get(directory, _EMPTY), after.listings.get(directory, _EMPTY)
        if now.file_names != old.file_names and _is_own(path := f"{directory}/", tops):
            names, left = set(old.file_names.split("/")), set(now.file_names.split("/"))
            gone += [path + name for name in names - left if name]
            new |= left - names
    # A file that has a new directory in the workspace was moved within it.
    return [path for path in gone if path.rpartition("/")[2] not in new]


def _is_own(path: str, tops: Sequence[str]) -> bool:
    """Return whether a path is in a workspace, but not below a build directory."""
    top = next(filter(path.startswith, tops), "")
    return bool(top) and not _SKIPPED.search(path, len(top) - 1)


def scan_executed(roots: Iterable[Path], most: int) -> dict[str, tuple[str, ...]]:
    """Return the names that match `EXECUTED_NAMES` in the `most` nearest directories of a workspace, by directory."""
    lister = start_scan(ENV_FILES, record := ScanRecord())
    waiting, looked = deque(str(root) for root in dict.fromkeys(roots) if root != Path(root.anchor)), 0
    while waiting and looked < most:
        looked += 1
        with suppress(OSError):
            waiting += lister(waiting.popleft()).subdirectories
    return record.executed


def is_complete(names: Iterable[str]) -> bool:
    """Return whether git may accept a directory with these names as a git directory, whatever they contain."""
    lowercase = {name.casefold() for name in names}
    return any(needed <= lowercase for needed in GIT_DIRECTORY_SETS)


def _read_listing(directory: str, secrets: SecretFiles) -> DirectoryListing:
    telling: list[str] = []
    directories: list[str] = []
    passed: list[str] = []
    git: list[str] = []
    executed: list[str] = []
    files: list[str] = []
    count = 0
    with os.scandir(directory) as entries:
        for count, entry in enumerate(entries, 1):  # noqa: B007 (the number of entries)
            name = entry.name
            is_directory = entry.is_dir(follow_symlinks=False)
            lowercase = name.casefold()
            if lowercase in GIT_NAMES:
                git.append(name)
            if lowercase in EXECUTED_NAMES:
                executed.append(name)
            if name == ".git" or (not is_directory and secrets.has(name)):
                telling.append(name)
            if is_directory:
                (passed if name == ".git" or name in BUILD_DIRECTORIES else directories).append(f"{directory}/{name}")
            else:
                files.append(name)
    if git and is_complete(git):
        telling.append(HEAD)
    return DirectoryListing(
        entry_count=count,
        notable=tuple(telling),
        subdirectories=tuple(directories),
        build_directories=tuple(passed),
        git_names=tuple(git),
        executed_names=tuple(executed),
        file_names="/".join(files),
    )
