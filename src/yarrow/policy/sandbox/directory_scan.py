"""Lists the directories of a workspace for what a sandbox must know of, and remembers those that did not change."""

import os
import stat
import time
from collections.abc import Callable, Iterable

from msgspec import Struct

from yarrow.policy.sandbox.directory_watches import DirectoryState, watches
from yarrow.policy.secrets import ENV_FILES, SecretFiles

MAX_PROTECTED_ENTRIES = 20_000
"""Entries of a workspace within which repositories are protected by mounts; the baseline judges those behind them."""
MAX_DIRECTORIES = 100_000
"""Directories of a workspace in which files of secrets are found, the nearest first."""
BUILD_DIRECTORIES = frozenset(
    {"node_modules", ".venv", "venv", "__pycache__", "target", "dist", "build", ".tox", ".cache"}
)
MAX_CACHED_DIRECTORIES = 200_000
"""Directories that are remembered; when there are more, all are read again."""
SETTLED_SECONDS = 2.0
"""A directory that changed so short a time ago is looked at again: one more change may not show in its time."""
NANOSECONDS = 1_000_000_000
HEAD = "HEAD"
GIT_DIRECTORY_SETS = (frozenset({"head", "objects", "refs"}), frozenset({"head", "commondir"}))
"""Lowercase names that together make git take a directory for a git directory, whatever it is called."""
GIT_DIRECTORY_NAMES = frozenset[str]().union(*GIT_DIRECTORY_SETS)
GIT_NAMES = GIT_DIRECTORY_NAMES | {".git", "config", "config.worktree", "hooks"}
"""Lowercase names that make a git directory, or that git executes or obeys in one."""


class DirectoryListing(Struct, frozen=True):
    """What a directory holds."""

    entry_count: int
    """How many entries."""
    notable: tuple[str, ...]
    """Repositories, files of secrets, and the `HEAD` of a directory that is itself a repository."""
    subdirectories: tuple[str, ...]
    """The paths of what is to be looked at in turn."""
    build_directories: tuple[str, ...] = ()
    """The paths of other directories, in which only git directories matter."""
    git_names: tuple[str, ...] = ()
    """The names that are among `GIT_NAMES` in any case: a file system may not tell them apart."""


ListDirectory = Callable[[str], DirectoryListing]
"""Returns what a directory holds. Raises OSError."""

_cache: dict[SecretFiles, dict[str, tuple[DirectoryState, DirectoryListing]]] = {}
"""By what is looked for, and by directory: its state, with what was found then."""


def list_directory(directory: str, secrets: SecretFiles = ENV_FILES) -> DirectoryListing:
    """Return what a directory holds; nothing of one that is a link. Raises OSError.

    It is not read again as long as it is the same one and nothing in it came, went or was renamed, nor who may read it
    changed: that sets the time of its last change, which no program can set to anything else.
    """
    return start_scan(secrets)(directory)


def start_scan(secrets: SecretFiles) -> ListDirectory:
    """Return `list_directory` for many directories, as a look at a workspace takes them before and after each command.

    It looks once at each directory, so that what is before one command is seen at one moment.
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
            # If nothing was reported since the directory was asked for, it is as it was.
            is_same = before is not None and same.get(directory) == before[0]
            names = seen[directory] = before[1] if before is not None and is_same else ask(directory, before)
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
        if time.time_ns() - status.st_ctime_ns > SETTLED_SECONDS * NANOSECONDS:
            if len(known) >= MAX_CACHED_DIRECTORIES:
                known.clear()
            known[directory] = (state, names)
        return names

    return list_one


def is_complete(names: Iterable[str]) -> bool:
    """Return whether git may take a directory with these names for a git directory, whatever they hold."""
    lowercase = {name.casefold() for name in names}
    return any(needed <= lowercase for needed in GIT_DIRECTORY_SETS)


def _read_listing(directory: str, secrets: SecretFiles) -> DirectoryListing:
    telling: list[str] = []
    directories: list[str] = []
    passed: list[str] = []
    git: list[str] = []
    count = 0
    with os.scandir(directory) as entries:
        for count, entry in enumerate(entries, 1):  # noqa: B007 (how many there were)
            name = entry.name
            is_directory = entry.is_dir(follow_symlinks=False)
            if name.casefold() in GIT_NAMES:
                git.append(name)
            if name == ".git" or (not is_directory and secrets.has(name)):
                telling.append(name)
            if is_directory:
                (passed if name == ".git" or name in BUILD_DIRECTORIES else directories).append(f"{directory}/{name}")
    if git and is_complete(git):
        telling.append(HEAD)
    return DirectoryListing(count, tuple(telling), tuple(directories), tuple(passed), tuple(git))
