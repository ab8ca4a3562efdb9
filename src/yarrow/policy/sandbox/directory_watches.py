"""Directories whose changes the kernel reports: what did not change since it was looked at need not be asked for.

A report never makes a verdict. It only says which directories must be asked for again, as all of them are where the
kernel reports nothing.
"""

import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Protocol

from yarrow.platform import system

MAX_ADDED = 500
"""Directories that one look at a workspace adds, at about 7 microseconds each; later looks add the others."""
MAX_WATCHED = 16_384
"""Directories that are watched in all; the others are asked for each time."""
PAUSE_SECONDS = 5.0
"""How long nothing is watched after reports were lost, or after something was mounted."""
RENEW_SECONDS = 600.0
"""Age at which a full set of watches is given up for those of the workspaces that are looked at now."""

DirectoryState = tuple[int, int, int]
"""Device, number, and time of the last change."""


class ChangeReports(Protocol):
    """Changes in directories as the system reports them."""

    room: int
    """Directories that may be added."""
    devices: frozenset[int]
    """Devices of the file systems in which every change is reported."""

    def add(self, place: str | int) -> int:
        """Report changes of a directory from now on; return the number that these have, negative for none."""
        ...

    def take(self) -> list[tuple[int, str, str]] | None:
        """Return what changed since the last time, None when that is unknown."""
        ...

    def close(self) -> object:
        """End all reports."""
        ...


class DirectoryWatches:
    """Directories that are watched, and the states of those that did not change since they were asked for.

    A state counts as long as the directory, and all above it up to one that is asked for each time, are watched.
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
        self._numbers: dict[str, int] = {}  # negative where changes are not reported
        self._paths: dict[int, tuple[str, ...]] = {}  # several where one directory is mounted twice
        self._tops: dict[str, tuple[int, int]] = {}
        self._unchanged: dict[str, DirectoryState] = {}

    def enable(self) -> None:
        """Watch directories from the next look on; until a first command was run, it would not be worth it."""
        self._is_wanted = True

    def begin_round(self) -> "WatchRound":
        """Take in what changed until now, and return what one look at a workspace needs."""
        with self._lock:
            changed = self._take_reports()
            return WatchRound(self, self._round, same=self._unchanged, changed=changed)

    def _take_reports(self) -> frozenset[str]:
        """Return the directories in which names changed, and those that are others now."""
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
            # A system that reports nothing is not asked before each look.
            self._resume_at = now + RENEW_SECONDS
            self._forget()

    def _room(self) -> int:
        return 0 if self._changes is None else min(MAX_WATCHED, self._changes.room) - self._added

    def _drop_doubtful(self, reports: Iterable[tuple[int, str, str]]) -> Iterator[str]:
        """Drop the states that reports made doubtful; yield the directories that must be read again."""
        gone: dict[str, None] = {}
        for number, kind, name in reports:
            for path in self._paths.get(number, ()):
                self._unchanged.pop(path, None)
                if kind == "gone":
                    gone[path] = None
                elif kind == "names":
                    yield path
                    # The directory of this name is another one now; a process may hold the one before, so that its own
                    # report comes later.
                    if (entry := f"{path}/{name}") in self._numbers:
                        gone[entry] = None
        if gone:
            yield from self._drop(gone)

    def _drop(self, gone: Iterable[str]) -> set[str]:
        """Drop directories with all that lies below them, and return these."""
        dropped = set(gone)
        # A directory is added after the one above it, so one pass meets all.
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
        """Return whether changes of a directory are reported; None when it was not added yet."""
        with self._lock:
            number = self._numbers.get(path)
            if number is None and may_add and self._changes is not None and self._room() > 0:
                self._add(path, self._changes)
                return None
            return number is not None and number >= 0

    def _add(self, path: str, changes: ChangeReports) -> None:
        number, above = -1, self._numbers.get(path.rpartition("/")[0])
        if above is not None:
            number = -1 if above < 0 else changes.add(path)
        else:
            # Nothing reports that another is put in its place, so it is known by its identity.
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
        """Take the state of a watched directory, unless something was reported since the look `number` began."""
        with self._lock:
            top = self._tops.get(path)
            if top is not None:
                if top != state[:2]:
                    self._drop((path,))
            elif number == self._round and self._changes is not None and state[0] in self._changes.devices:
                self._unchanged[path] = state


class WatchRound:
    """One look at a workspace."""

    def __init__(
        self, watches: DirectoryWatches, number: int, *, same: dict[str, DirectoryState], changed: frozenset[str]
    ) -> None:
        self._watches = watches
        self._number = number
        self._left = MAX_ADDED
        self.unchanged = same
        """States of directories that did not change."""
        self.changed = changed
        """Directories of which an earlier look says nothing any more."""

    def watch(self, path: str) -> bool:
        """Watch a directory, before it is asked for; return whether changes of it are reported."""
        is_watched = self._watches.watch(path, may_add=self._left > 0)
        if is_watched is None:
            self._left -= 1
            is_watched = self._watches.watch(path, may_add=False)
        return bool(is_watched)

    def confirm(self, path: str, state: DirectoryState) -> None:
        """Take the state that a watched directory has."""
        self._watches.confirm(path, state, self._number)


watches = DirectoryWatches()
"""Those of this process: the system counts them by user."""
