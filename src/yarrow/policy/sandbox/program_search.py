"""Search for the user's programs and environments that a sandbox shows: those named by PATH and a few variables."""

import os
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from yarrow.policy.sandbox.package_caches import CACHE_SUBDIRECTORIES
from yarrow.policy.sandbox.toolchains import (
    BROAD_DIRECTORIES,
    CORE_DIRECTORIES,
    INSTALLATION_MARKERS,
    LIBRARY_VARIABLES,
    OTHER_FILES,
    PROGRAM_DIRECTORIES,
    PROJECT_TREES,
    SETTINGS_DIRECTORIES,
    SETTINGS_MARKERS,
    TOOL_DIRECTORIES,
    TOOLCHAIN_DIRECTORIES,
    VARIABLES,
    WHOLE_DIRECTORIES,
    WINDOWS_DRIVE,
)
from yarrow.policy.secret_file_patterns import is_secret_file, is_secret_name
from yarrow.policy.symlinks import follow_symlinks

MAX_DIRECTORIES = 96
"""Maximum directories of programs and installations searched; later ones stay hidden."""
MAX_ENTRIES = 4_096
"""Maximum entries read of a directory; symlinks beyond them are not followed."""
MAX_SHOWN = 384
"""Maximum paths shown, since each needs a mount; later ones stay hidden."""
SYSTEM_PROGRAMS = frozenset({"/usr/bin", "/usr/sbin", "/bin", "/sbin"})
"""Directories whose symlinks stay within the system."""
MAX_CFG_BYTES = 8_192
"""Maximum bytes read of a `pyvenv.cfg`."""


class ProgramScope(Struct, frozen=True):
    """Paths that determine what is hidden and may be shown; all are real."""

    home: str
    hidden: tuple[str, ...]
    """Directories that are replaced inside."""
    homes: tuple[str, ...]
    """Directories that contain homes."""
    writable: tuple[str, ...] = ()
    """Roots of the workspace: they are shown anyway, and symlinks that lead out of them are not followed."""
    readable: tuple[str, ...] = ()
    secret_paths: tuple[str, ...] = ()
    """Secret paths, which are not shown under another name either."""
    restricted: tuple[str, ...] = ()
    """Directories that only root can read, which are hidden; they may be installations of programs."""


class ProgramFinder:
    """One search for programs to show."""

    def __init__(self, scope: ProgramScope) -> None:
        self._scope = scope
        self._waiting: deque[str] = deque()
        self._seen: set[str] = set()
        self._found: dict[str, str] = {}
        self.dependencies: set[str] = set()
        """Paths on which the result depends."""
        self.directories: set[str] = set()
        """Real paths of the directories of programs and installations."""

    def find(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the real path of everything to show, by its path inside; paths below another one are omitted."""
        for entry in environment.get("PATH", "").split(os.pathsep):
            self._enqueue(entry)
        for name in VARIABLES:
            value = environment.get(name, "")
            for place in value.split(os.pathsep) if value else ():
                self._add_variable(place)
        for name in LIBRARY_VARIABLES:
            value = environment.get(name, "")
            for place in value.split(os.pathsep) if value else ():
                self._add_library(place)
        self._add_toolchains()
        while self._waiting and len(self._seen) < MAX_DIRECTORIES:
            self._add_directory(self._waiting.popleft())
        return self._outermost()

    def show(self, path: str, *, is_named: bool = False) -> bool:
        """Show a path, at each stage of following its symlinks; return whether it may be seen.

        `is_named` marks a directory of programs on PATH, which may lie in a secret path.
        """
        trail = list(follow_symlinks(path))
        real = trail[-1]
        self.dependencies.update((path, *(stage for stage in trail[1:])))
        if not os.path.lexists(real) or self._is_broad(real) or not self._is_trusted(trail):
            return False
        if any(self._is_secret(stage) for stage in trail) and not (is_named and len(trail) == 1):
            return False
        for stage in trail:
            if self.is_hidden(stage) and len(self._found) < MAX_SHOWN:
                self._found.setdefault(stage, real)
        return True

    def _enqueue(self, entry: str) -> None:
        if not entry.startswith("/") or re.fullmatch(WINDOWS_DRIVE, entry):
            return
        path = os.path.normpath(entry)
        if path not in SYSTEM_PROGRAMS and path not in self._seen:
            self._seen.add(path)
            self._waiting.append(path)

    def _add_variable(self, place: str) -> None:
        if not place.startswith("/"):
            return
        path = os.path.normpath(place)
        if os.path.basename(path) in PROGRAM_DIRECTORIES:  # noqa: PTH119 (strings throughout)
            self._enqueue(path)
        elif self.is_hidden(path) or len(list(follow_symlinks(path))) > 1:
            self._add_installation(path)
            self._enqueue(f"{path}/bin")

    def _add_library(self, place: str) -> None:
        """Show a library directory or archive, without dot files and without repositories in it."""
        path = os.path.normpath(place)
        if not place.startswith("/") or not self.is_hidden(path):
            return
        trail = list(follow_symlinks(path))
        real = trail[-1]
        if not os.path.isdir(real):  # noqa: PTH112 (strings throughout)
            if not any(is_secret_file(*os.path.split(stage)) for stage in trail):
                self.show(path)
        elif self._is_trusted(trail) and not any(self._is_secret(stage) or self._holds_more(stage) for stage in trail):
            names = self._names(real)
            others = {name for name in names if name.startswith(".") or os.path.lexists(f"{real}/{name}/.git")}
            others.update(name for name in names if is_secret_file(real, name) or is_secret_name(name))
            for name in ("",) if not others and not self._is_broad(real) else sorted(names - others):
                self.show(f"{path}/{name}".rstrip("/"))

    def _add_toolchains(self) -> None:
        home = self._scope.home
        top = self._names(home)
        for name in TOOLCHAIN_DIRECTORIES:
            first, _, rest = name.partition("/")
            if first not in top:
                continue
            path = f"{home}/{name}"
            if rest:
                self.dependencies.add(os.path.dirname(path))  # noqa: PTH120 (strings throughout)
                if not os.path.lexists(path):
                    continue
            if os.path.basename(path) in PROGRAM_DIRECTORIES:  # noqa: PTH119 (strings throughout)
                self._enqueue(path)
            elif name in WHOLE_DIRECTORIES:
                self.show(path)
            else:
                self._add_installation(path, is_tool=True)

    def _add_directory(self, path: str) -> None:
        """Show a directory of programs, what belongs to it, and the targets of its symlinks."""
        trail = list(follow_symlinks(path))
        real = trail[-1]
        if self._is_in(trail[0], self._scope.writable) or not os.path.isdir(real):  # noqa: PTH112 (strings throughout)
            self.dependencies.update(trail)
            return
        is_hidden = any(self.is_hidden(stage) for stage in trail)
        if is_hidden and not self.show(path, is_named=os.path.basename(path) in PROGRAM_DIRECTORIES):  # noqa: PTH119 (strings throughout)
            return
        if is_hidden and not self._is_secret(path):
            for stage in trail:
                above, _, name = stage.rpartition("/")
                if name not in PROGRAM_DIRECTORIES:
                    continue
                if stage.endswith(PROJECT_TREES) and not self._is_broad(above):
                    self.show(above)
                else:
                    self._add_installation(above)
        if not self._is_in(real, self._scope.writable):
            self.directories.add(real)
            self._add_symlinks(real)

    def _add_installation(self, path: str, *, is_tool: bool = False) -> None:
        """Show what belongs to the programs of an installation: all of it if it contains nothing else."""
        trail = list(follow_symlinks(path))
        real = trail[-1]
        if not self._is_trusted(trail) or any(self._is_secret(stage) for stage in trail):
            return
        if any(self._holds_more(stage) for stage in trail):
            return
        listed = self._names(real)
        names = (
            TOOL_DIRECTORIES
            if is_tool or self._is_tool(path) or not INSTALLATION_MARKERS.isdisjoint(listed)
            else CORE_DIRECTORIES
        )
        if not SETTINGS_MARKERS.isdisjoint(listed):
            names |= SETTINGS_DIRECTORIES
        belonging = listed & names
        if not belonging:
            return
        self.directories.add(real)
        beside = re.compile(OTHER_FILES)
        grows = CACHE_SUBDIRECTORIES.get(os.path.basename(path)) if INSTALLATION_MARKERS.isdisjoint(listed) else None  # noqa: PTH119 (strings throughout)
        is_whole = (grows is None or grows in listed) and all(
            name in names or beside.fullmatch(name) for name in listed
        )
        if is_whole and self.show(path):
            pass
        else:
            for name in sorted(belonging):
                self.show(f"{path}/{name}")
        if "pyvenv.cfg" in listed:
            self._enqueue(_base_python(f"{real}/pyvenv.cfg"))

    def _add_symlinks(self, directory: str) -> None:
        self.dependencies.add(directory)
        try:
            with os.scandir(directory) as entries:
                links = [entry.path for _, entry in zip(range(MAX_ENTRIES), entries) if entry.is_symlink()]  # noqa: B905 (ends with the shorter one)
        except OSError:
            return
        for link in links:
            trail = list(follow_symlinks(link))
            real = trail[-1]
            if not self.is_hidden(real) or self._is_shown(real) or not os.path.isfile(real):  # noqa: PTH113 (strings throughout)
                continue
            above = os.path.dirname(real)  # noqa: PTH120 (strings throughout)
            if os.path.basename(above) in PROGRAM_DIRECTORIES and self._is_trusted(trail):  # noqa: PTH119 (strings throughout)
                self._enqueue(above)
            else:
                self.show(link)

    def _names(self, directory: str) -> set[str]:
        self.dependencies.add(directory)
        try:
            return set(os.listdir(directory))  # noqa: PTH208 (strings throughout)
        except OSError:
            return set()

    def is_hidden(self, path: str) -> bool:
        """Return whether a path is hidden or replaced inside."""
        scope = self._scope
        return self._is_in(path, (*scope.hidden, *scope.restricted)) and not self._is_in(
            path, (*scope.writable, *scope.readable)
        )

    def _is_secret(self, path: str) -> bool:
        return self._is_in(path, self._scope.secret_paths)

    def _is_shown(self, path: str) -> bool:
        return self._is_in(path, self._found)

    def _is_trusted(self, trail: Sequence[str]) -> bool:
        """Return whether no symlink in the workspace, where commands can create them, leads out of it."""
        is_inside = False
        for stage in trail:
            is_here = self._is_in(stage, self._scope.writable)
            if is_inside and not is_here:
                return False
            is_inside = is_here
        return True

    def _is_broad(self, path: str) -> bool:
        """Return whether a path contains more than programs, so that it is never shown as a whole."""
        above = f"{path.rstrip('/')}/"
        scope = self._scope
        if any(f"{place}/".startswith(above) for place in (scope.home, *scope.hidden, *scope.writable)):
            return True
        return path.rpartition("/")[0] in scope.homes or self._below_home(path) in BROAD_DIRECTORIES

    def _holds_more(self, path: str) -> bool:
        """Return whether the contents of a directory belong to a user rather than to the programs in it."""
        scope = self._scope
        is_above = any(f"{place}/".startswith(f"{path.rstrip('/')}/") for place in (scope.home, *scope.hidden))
        return is_above or path.rpartition("/")[0] in scope.homes or self._below_home(path) in BROAD_DIRECTORIES

    def _is_tool(self, path: str) -> bool:
        """Return whether a path is below a dot directory of a home, or outside all homes and hidden directories."""
        below = self._below_home(path)
        return below.startswith(".") if below else not self._is_in(path, self._scope.hidden)

    def _below_home(self, path: str) -> str:
        """Return a path relative to the home that contains it; empty if none does."""
        home = self._scope.home
        if path.startswith(f"{home}/"):
            return path[len(home) + 1 :]
        for place in self._scope.homes:
            if path.startswith(f"{place}/"):
                return path[len(place) + 1 :].partition("/")[2]
        return ""

    def _is_in(self, path: str, places: Iterable[str]) -> bool:
        return any(path == place or path.startswith(f"{place}/") for place in places)

    def _outermost(self) -> dict[str, str]:
        """Return the found paths without those below another one."""
        found: dict[str, str] = {}
        for target in sorted(self._found):
            above = target
            while above and (above := above.rpartition("/")[0]) and above not in found:
                pass
            if not above:
                found[target] = self._found[target]
        return found


def _base_python(config: str) -> str:
    """Return the directory of the Python from which an environment was created."""
    try:
        with open(config, "rb") as opened:
            text = opened.read(MAX_CFG_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    match = re.search(r"^home\s*=\s*(.+?)\s*$", text, re.MULTILINE)
    return match[1] if match else ""
