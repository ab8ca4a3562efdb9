"""Directory of a session with the home, /tmp and /dev/shm of its commands: size limit, removal, reported changes."""

import os
import stat
import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from yarrow.policy.deep_tree_operations import remove_tree
from yarrow.policy.sandbox.redacted_settings import copy_settings
from yarrow.policy.sandbox.sandbox_spec import SandboxSpec, sandbox_home

DIRECTORIES = ("tmp", "shm", "home")
CACHES = "caches"
"""Name of the directory with the session's own package manager caches."""
MAX_BYTES = 4_294_967_296
"""Maximum bytes on disk of a session's directories between two commands (4 GiB); beyond that, they are emptied."""
MEASURE_SECONDS = 60.0
"""Minimum seconds between two measurements of the size."""
MEASURE_SHARE = 100
"""Minimum time between two measurements, as a multiple of the duration of the last one."""
MAX_ENTRIES = 2_000
"""Maximum entries of a session's home that are scanned; changes to later ones go unreported."""
MAX_NAMED = 5
"""Maximum paths named in one notice; the rest are counted."""
_next_measure: dict[Path, float] = {}
_users: dict[Path, int] = {}
_lock = threading.RLock()
"""Reentrant, because garbage collection may call `release` in the same thread."""


def session_places(spec: SandboxSpec) -> tuple[tuple[Path, Path], ...]:
    """Return the session's own directories, each with the path at which commands see it."""
    directory = spec.session_dir
    return (
        (directory / "home", sandbox_home(spec.home)),
        (directory / "tmp", Path("/tmp")),  # noqa: S108 (the session's own)
        (directory / "shm", Path("/dev/shm")),  # noqa: S108 (the session's own)
    )


def create(session_dir: Path) -> None:
    """Create the directories that are missing. Raises OSError."""
    for name in DIRECTORIES:
        (session_dir / name).mkdir(mode=0o700, parents=True, exist_ok=True)


def acquire(session_dir: Path) -> bool:
    """Create the directories for another command; return whether they exceeded the limit and were emptied.

    They are not emptied while another command uses them. Each `acquire` needs a `release`. Raises OSError.
    """
    create(session_dir)
    start = time.monotonic()
    with _lock:
        is_alone = session_dir not in _users
        _users[session_dir] = _users.get(session_dir, 0) + 1
        if not is_alone or start < _next_measure.setdefault(session_dir, start + MEASURE_SECONDS):
            return False
    is_much = _disk_usage(session_dir) > MAX_BYTES
    if is_much:
        for name in DIRECTORIES:
            remove_tree(session_dir / name)
            (session_dir / name).mkdir(mode=0o700, exist_ok=True)
        remove_tree(session_dir / CACHES)
    took = time.monotonic() - start
    _next_measure[session_dir] = time.monotonic() + max(MEASURE_SECONDS, took * MEASURE_SHARE)
    return is_much


def release(session_dir: Path) -> None:
    """Register the end of a command."""
    with _lock:
        _users[session_dir] = _users.get(session_dir, 1) - 1
        if not _users[session_dir]:
            del _users[session_dir]


def remove(session_dir: Path) -> None:
    """Remove a session's directory; what cannot be removed is removed with the service's own directory."""
    _next_measure.pop(session_dir, None)
    remove_tree(session_dir)


def _disk_usage(directory: Path) -> int:
    """Return the disk usage of a directory in bytes; inaccessible parts are not counted."""
    used, waiting = 0, [str(directory)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    used += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return used


HomeState = dict[str, tuple[int, int, int]]
"""Inode, size and modification time of each file; inode, -1 and 0 for a directory."""


class HomeChanges(Struct, frozen=True):
    """The visible files of a session's home before a command."""

    directory: Path
    home: Path
    """Path at which commands see the directory."""
    mounted: frozenset[str]
    """Names in it that are mount points."""
    spec: SandboxSpec
    before: HomeState

    @classmethod
    def snapshot(cls, spec: SandboxSpec, repositories: Iterable[Path] = ()) -> "HomeChanges":
        """Take a snapshot before a command; `repositories` outside the workspace are mounted for its worktrees."""
        home, directory = sandbox_home(spec.home), spec.session_dir / "home"
        shown = (*spec.writable, *spec.readable, *repositories)
        roots = (path for path in shown if path != home and path.is_relative_to(home))
        mounted = frozenset(path.relative_to(home).parts[0] for path in roots)
        return cls(directory, home, mounted, spec, _read_state(directory, mounted))

    def list_changed(self) -> list[str]:
        """Return the paths below the home that commands wrote since; contents of a listed directory are omitted.

        Empty directories do not count: they may be mount points.
        """
        after = _read_state(self.directory, self.mounted)
        if after != self.before:
            settings = self._settings()
            after = {path: state for path, state in after.items() if path not in settings}
        filled = {os.path.dirname(path) for path in after}  # noqa: PTH120 (strings)
        empty = {path for path, state in after.items() if state[1] < 0 and path not in filled}
        changed = {path for path, state in after.items() if self.before.get(path) != state} - empty
        return sorted(path for path in changed if os.path.dirname(path) not in changed)  # noqa: PTH120 (strings)

    def _settings(self) -> set[str]:
        """Return where the user's settings are mounted, which creates an empty file for each."""
        shown = (
            path for path, _ in copy_settings(self.spec.home, self.spec.session_dir / "settings", self.spec.writable)
        )
        return {str(path.relative_to(self.home)) for path in shown if path.is_relative_to(self.home)}

    def notice(self) -> str:
        """Return a notice for the model about what commands wrote there; empty if there is nothing."""
        written = self.list_changed()
        if not written:
            return ""
        names = ", ".join(f"~/{path}" for path in written[:MAX_NAMED])
        more = f" and {len(written) - MAX_NAMED} more" if len(written) > MAX_NAMED else ""
        return (
            f"{names}{more}: written to this session's temporary home, not to the user's {self.home}. "
            "Put files to keep in the workspace"
        )


def _read_state(directory: Path, mounted: frozenset[str]) -> HomeState:
    state: HomeState = {}
    waiting = deque([""])
    while waiting and len(state) < MAX_ENTRIES:
        below = waiting.popleft()
        with suppress(OSError), os.scandir(directory / below) as entries:
            for entry in entries:
                if not below and (entry.name.startswith(".") or entry.name in mounted):
                    continue
                path = f"{below}/{entry.name}" if below else entry.name
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    state[path] = (status.st_ino, -1, 0)
                    waiting.append(path)
                else:
                    state[path] = (status.st_ino, status.st_size, status.st_mtime_ns)
                if len(state) >= MAX_ENTRIES:
                    break
    return state
