"""Changes to visible files of the session's home, which the user would expect in the real home."""

import os
import stat
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from yarrow.policy.sandbox.hidden_directories import sandbox_home
from yarrow.policy.sandbox.redacted_settings import copy_settings
from yarrow.policy.sandbox.sandbox_spec import SandboxSpec

MAX_ENTRIES = 2_000
"""Maximum entries of a session's home that are scanned; changes to later ones go unreported."""
MAX_NAMED = 5
"""Maximum paths named in one notice; the rest are counted."""

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
