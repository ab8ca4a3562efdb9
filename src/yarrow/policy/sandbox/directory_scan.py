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

from yarrow.policy.executed_paths import EXECUTED_NAMES
from yarrow.policy.sandbox.directory_watches import DirectoryState, watches
from yarrow.policy.secrets import ENV_FILES, SecretFiles

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


def start_scan(secrets: SecretFiles, executed: dict[str, tuple[str, ...]] | None = None) -> ListDirectory:
    """Return a `list_directory` for scans of many directories, as before and after each command.

    It checks each directory only once, so that everything before a command sees the same state of it. `executed`
    receives the names that match `EXECUTED_NAMES`, by directory.
    """
    known, seen, begun = _cache.setdefault(secrets, {}), dict[str, DirectoryListing](), watches.begin_round()
    for directory in begun.changed:
        for others in _cache.values():
            others.pop(directory, None)
    same = begun.unchanged

    def list_one(directory: str) -> DirectoryListing:
        names = seen.get(directory)
        if names is None:
            before = known.get(directory)
            # If nothing was reported since the directory was read, it is unchanged.
            is_same = before is not None and same.get(directory) == before[0]
            names = seen[directory] = before[1] if before is not None and is_same else ask(directory, before)
            if names.executed_names and executed is not None:
                executed[directory] = names.executed_names
        return names

    def ask(directory: str, before: tuple[DirectoryState, DirectoryListing] | None) -> DirectoryListing:
        is_watched = begun.watch(directory)
        status = os.lstat(directory)
        state = (status.st_dev, status.st_ino, status.st_ctime_ns)
        if is_watched:
            begun.confirm(directory, state)
        if before is not None and before[0] == state:
            return before[1]
        if not stat.S_ISDIR(status.st_mode):
            return DirectoryListing(0, (), ())
        names = _read_listing(directory, secrets)
        _cache_settled(known, directory, state=state, names=names)
        return names

    return list_one


def _cache_settled(
    known: dict[str, tuple[DirectoryState, DirectoryListing]],
    directory: str,
    *,
    state: DirectoryState,
    names: DirectoryListing,
) -> None:
    if time.time_ns() - state[2] > SETTLED_SECONDS * NANOSECONDS:
        if len(known) >= MAX_CACHED_DIRECTORIES:
            known.clear()
        known[directory] = (state, names)


def executed_entries(roots: Sequence[Path], executed: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the paths of a workspace whose names match `EXECUTED_NAMES`, except below build directories."""
    tops = tuple(f"{root}/" for root in roots)
    for directory, names in executed.items():
        path = f"{directory}/"
        top = next(filter(path.startswith, tops), "")
        if top and not _SKIPPED.search(path, len(top) - 1):
            for name in names:
                yield path + name


def scan_executed(roots: Iterable[Path], most: int) -> dict[str, tuple[str, ...]]:
    """Return the names that match `EXECUTED_NAMES` in the `most` nearest directories of a workspace, by directory."""
    executed: dict[str, tuple[str, ...]] = {}
    lister = start_scan(ENV_FILES, executed)
    waiting, looked = deque(str(root) for root in dict.fromkeys(roots) if root != Path(root.anchor)), 0
    while waiting and looked < most:
        looked += 1
        with suppress(OSError):
            waiting += lister(waiting.popleft()).subdirectories
    return executed


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
    if git and is_complete(git):
        telling.append(HEAD)
    return DirectoryListing(count, tuple(telling), tuple(directories), tuple(passed), tuple(git), tuple(executed))
