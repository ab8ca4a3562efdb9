"""Programs of the home directory that a sandbox shows, without the credentials next to them."""

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice

from msgspec import Struct

from yarrow.policy.sandbox.program_search import ProgramFinder, ProgramScope
from yarrow.policy.sandbox.toolchains import LIBRARY_VARIABLES, VARIABLES
from yarrow.policy.secret_file_patterns import PACKAGE_DIRECTORIES, is_secret_file, is_secret_name
from yarrow.policy.secret_names import ENV_FILES

MAX_CACHED = 16
"""Maximum cached searches; the oldest is dropped."""
PACKAGES, MANIFEST = "node_modules", "package.json"
"""Directory of installed packages, and the file beside it that names them."""
SETTLED_NANOSECONDS = 2_000_000_000
"""Age of the last change, in nanoseconds, from which on another change shows in the change time."""
StatState = tuple[int, int, int] | None
"""Device, inode and change time of a path, which no program can set; None if it does not exist."""


class VisiblePrograms(Struct, frozen=True):
    """Paths of programs in a sandbox."""

    shown: tuple[tuple[str, str], ...]
    """Paths shown read-only: the path on the machine, and the path inside."""
    masked: tuple[str, ...]
    """Files and directories with keys in what is shown; they are masked."""


class _CachedSearch(Struct, frozen=True):
    programs: VisiblePrograms
    states: dict[str, StatState]


_cache: dict[tuple[ProgramScope, tuple[str, ...]], _CachedSearch] = {}
_lock = threading.Lock()


def find_visible_programs(scope: ProgramScope, environment: Mapping[str, str]) -> VisiblePrograms:
    """Return what is shown for an environment; cached while no relevant directory changes."""
    key = (scope, tuple(environment.get(name, "") for name in ("PATH", *VARIABLES, *LIBRARY_VARIABLES)))
    with _lock:
        known = _cache.get(key)
    if known is not None and all(_lstat_state(path) == state for path, state in known.states.items()):
        return known.programs
    start = time.time_ns()
    sight, watched = _search(scope, environment)
    states = {path: _lstat_state(path) for path in watched}
    if is_settled(states.values(), start):
        with _lock:
            if len(_cache) >= MAX_CACHED:
                _cache.pop(next(iter(_cache)), None)
            _cache[key] = _CachedSearch(sight, states)
    return sight


def _search(scope: ProgramScope, environment: Mapping[str, str]) -> tuple[VisiblePrograms, set[str]]:
    finder = ProgramFinder(scope)
    found = finder.find(environment)
    packages = find_hoisted_packages(scope, finder.dependencies)
    found |= {path: path for path in packages if finder.is_hidden(path) and path not in found}
    keys = set(scope.secret_paths)
    for directory in {*found.values(), *finder.directories}:
        if finder.is_hidden(directory) and os.path.isdir(directory):  # noqa: PTH112 (otherwise visible to everyone)
            keys.update(f"{directory}/{name}" for name in find_credential_files(directory, finder.dependencies))
    for directory in _tool_directories(scope):
        keys.update(f"{directory}/{name}" for name in find_credential_files(directory, finder.dependencies))
    masked = tuple(
        sorted({*_sandbox_paths(keys, found), *_sandbox_paths(keys, {root: root for root in scope.readable})})
    )
    return VisiblePrograms(tuple((source, target) for target, source in found.items()), masked), finder.dependencies


def find_hoisted_packages(scope: ProgramScope, watched: set[str]) -> Iterator[str]:
    """Yield each `node_modules` beside a `package.json` above a workspace, where Node.js searches for packages.

    Adds the directories on which the result depends to `watched`. Neither the home nor a directory above it counts.
    """
    tops = {"/", scope.home, *scope.hidden, *scope.homes}
    for root in scope.writable:
        above = os.path.dirname(root)  # noqa: PTH120 (strings throughout)
        while above not in tops and not f"{scope.home}/".startswith(f"{above}/"):
            watched.add(above)
            path = f"{above}/{PACKAGES}"
            if os.path.isdir(path) and not os.path.islink(path) and os.path.isfile(f"{above}/{MANIFEST}"):  # noqa: PTH112, PTH113, PTH114 (strings throughout)
                yield path
            above = os.path.dirname(above)  # noqa: PTH120 (strings throughout)


def _tool_directories(scope: ProgramScope) -> Iterator[str]:
    """Yield the tool directories shown because `workspace.read` names the home or a part of it."""
    for root in scope.readable:
        if f"{scope.home}/".startswith(f"{root.rstrip('/')}/"):
            with suppress(OSError):
                names = os.listdir(scope.home)  # noqa: PTH208 (strings throughout)
                yield from (f"{scope.home}/{name}" for name in names if name.startswith("."))
        elif root.startswith(f"{scope.home}/."):
            yield root


def _sandbox_paths(paths: Iterable[str], found: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths inside of machine paths; one may be shown in several places."""
    for path in paths:
        for target, source in found.items():
            if path.startswith(f"{source}/"):
                yield f"{target}{path[len(source) :]}"


def is_settled(states: Iterable[StatState], start: int) -> bool:
    """Return whether every change after `start`, in ns since the epoch, shows in a state taken then or later."""
    return all(state is None or start - state[2] > SETTLED_NANOSECONDS for state in states)


def _lstat_state(path: str) -> StatState:
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


MAX_DEPTH = 3
"""Maximum levels of directories scanned; deeper ones contain packages."""
MAX_DIRECTORIES = 256
"""Maximum directories scanned below one program directory."""
MAX_ENTRIES = 8_192
"""Maximum entries scanned per directory."""


def find_credential_files(top: str, watched: set[str]) -> Iterator[str]:
    """Yield the relative paths of files and directories below `top` that contain keys, nearest first.

    Adds the directories on which the result depends to `watched`.
    """
    level, looked = [""], 0
    for _ in range(MAX_DEPTH):
        below: list[str] = []
        for directory in level:
            looked += 1
            if looked > MAX_DIRECTORIES:
                return
            path = f"{top}/{directory}".rstrip("/")
            watched.add(path)
            yield from _scan_directory(path, directory, below)
        level = below


def _scan_directory(path: str, directory: str, below: list[str]) -> Iterator[str]:
    try:
        with os.scandir(path) as entries:
            for entry in islice(entries, MAX_ENTRIES):
                name = entry.name
                relative = f"{directory}/{name}".lstrip("/")
                if entry.is_symlink():
                    if is_secret_name(name) or ENV_FILES.has(name):
                        yield relative
                elif entry.is_dir():
                    if is_secret_name(name):
                        yield relative
                    elif name not in PACKAGE_DIRECTORIES:
                        below.append(relative)
                elif is_secret_file(path, name) or ENV_FILES.has(name):
                    yield relative
    except OSError:
        return
