"""Directories whose changes the kernel reports, so that unchanged ones need not be checked again.

Reports never decide anything. They only say which directories must be checked again; without kernel support, all of
them are.
"""

import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from yarrow.platform import system

if TYPE_CHECKING:
    from yarrow.platform.base import ChangeReports

MAX_ADDED = 500
"""Maximum directories added per scan, at about 7 microseconds each; later scans add the rest."""
MAX_WATCHED = 16_384
"""Maximum directories watched in total; the rest are checked every time."""
PAUSE_SECONDS = 5.0
"""Seconds without any watches after reports were lost, or after something was mounted."""
RENEW_SECONDS = 600.0
"""Age in seconds at which a full set of watches is dropped in favor of the workspaces being scanned now."""

DirectoryState = tuple[int, int, int]
"""Device, inode and change time."""


class DirectoryWatches:
    """Watched directories, and the states of those that did not change since they were checked.

    A state is valid as long as the directory and all its parents, up to one that is checked every time, are watched.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changes: ChangeReports | None = None
        self._is_wanted = False
        self._resume_at = 0.0
        self._round = 0
        self._forget()

    def _forget(self) -> None:
        self._round += 1
        self._began = time.monotonic()
        self._added = 0
        self._numbers: dict[str, int] = {}  # negative if changes are not reported
        self._paths: dict[int, tuple[str, ...]] = {}  # several if a directory is mounted more than once
        self._tops: dict[str, tuple[int, int]] = {}
        self._unchanged: dict[str, DirectoryState] = {}

    def enable(self) -> None:
        """Watch directories from the next scan on; before the first command that is not worthwhile."""
        self._is_wanted = True

    def begin_round(self) -> "WatchRound":
        """Process the changes so far, and return the object for one scan of a workspace."""
        with self._lock:
            changed = self._take_reports()
            return WatchRound(self, self._round, same=self._unchanged, changed=changed)

    def _take_reports(self) -> frozenset[str]:
        """Return the directories in which names changed, or that were replaced."""
        if self._changes is None:
            self._start()
            return frozenset()
        reports, now = self._changes.take(), time.monotonic()
        if reports is None or (self._room() <= 0 and now >= self._began + RENEW_SECONDS):
            self._changes.close()
            self._changes = None
            self._resume_at = now if reports is not None else now + PAUSE_SECONDS
            self._forget()
            return frozenset()
        if not reports:
            return frozenset()
        self._round += 1
        return frozenset(self._drop_doubtful(dict.fromkeys(reports)))

    def _start(self) -> None:
        if self._is_wanted and (now := time.monotonic()) >= self._resume_at:
            self._changes = system.open_directory_changes()
            # A system without reports is not asked before each scan.
            self._resume_at = now + RENEW_SECONDS
            self._forget()

    def _room(self) -> int:
        return 0 if self._changes is None else min(MAX_WATCHED, self._changes.room) - self._added

    def _drop_doubtful(self, reports: Iterable[tuple[int, str, str]]) -> Iterator[str]:
        """Drop states made doubtful by reports; yield the directories that must be read again."""
        gone: dict[str, None] = {}
        for number, kind, name in reports:
            for path in self._paths.get(number, ()):
                self._unchanged.pop(path, None)
                if kind == "gone":
                    gone[path] = None
                elif kind == "names":
                    yield path
                    # The directory with this name was replaced; a process may still hold the old one, which delays its
                    # own report.
                    if (entry := f"{path}/{name}") in self._numbers:
                        gone[entry] = None
        if gone:
            yield from self._drop(gone)

    def _drop(self, gone: Iterable[str]) -> set[str]:
        """Drop directories with everything below them, and return all of these."""
        dropped = set(gone)
        # A directory is added after its parent, so one pass is enough.
        for path in self._numbers:
            if path.rpartition("/")[0] in dropped:
                dropped.add(path)
        for path in dropped:
            self._unchanged.pop(path, None)
            self._tops.pop(path, None)
            number = self._numbers.pop(path, -1)
            others = tuple(other for other in self._paths.pop(number, ()) if other != path)
            if others:
                self._paths[number] = others
        return dropped

    def watch(self, path: str, *, may_add: bool) -> bool | None:
        """Return whether changes of a directory are reported; None if this call added it."""
        with self._lock:
            number = self._numbers.get(path)
            if number is None and may_add and self._changes is not None and self._room() > 0:
                self._add(path, self._changes)
                return None
            return number is not None and number >= 0

    def _add(self, path: str, changes: "ChangeReports") -> None:
        number, above = -1, self._numbers.get(path.rpartition("/")[0])
        if above is not None:
            number = -1 if above < 0 else changes.add(path)
        else:
            # Nothing reports that it is replaced, so it is recognized by its identity.
            with suppress(OSError):
                descriptor = system.open_directory(path, follow=False)
                try:
                    status = os.fstat(descriptor)
                    if status.st_dev in changes.devices:
                        number = changes.add(descriptor)
                        self._tops[path] = (status.st_dev, status.st_ino)
                finally:
                    os.close(descriptor)
        self._numbers[path] = number
        if number >= 0:
            self._added += 1
            self._paths[number] = (*self._paths.get(number, ()), path)

    def confirm(self, path: str, state: DirectoryState, number: int) -> None:
        """Store the state of a watched directory, unless something was reported since round `number` began."""
        with self._lock:
            top = self._tops.get(path)
            if top is not None:
                if top != state[:2]:
                    self._drop((path,))
            elif number == self._round and self._changes is not None and state[0] in self._changes.devices:
                self._unchanged[path] = state


class WatchRound:
    """One scan of a workspace."""

    def __init__(
        self, watches: DirectoryWatches, number: int, *, same: dict[str, DirectoryState], changed: frozenset[str]
    ) -> None:
        self._watches = watches
        self._number = number
        self._left = MAX_ADDED
        self.unchanged = same
        """States of directories that did not change."""
        self.changed = changed
        """Directories whose cached listings are invalid."""

    def watch(self, path: str) -> bool:
        """Watch a directory before it is checked; return whether its changes are reported."""
        is_watched = self._watches.watch(path, may_add=self._left > 0)
        if is_watched is None:
            self._left -= 1
            is_watched = self._watches.watch(path, may_add=False)
        return bool(is_watched)

    def confirm(self, path: str, state: DirectoryState) -> None:
        """Store the current state of a watched directory."""
        self._watches.confirm(path, state, self._number)


watches = DirectoryWatches()
"""The watches of this process; the system limits them by user."""
