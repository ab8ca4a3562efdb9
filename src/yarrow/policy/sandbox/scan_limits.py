"""Number of directories by which commands raised the limit of a scan, so that theirs displace no others from it."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from yarrow.policy.sandbox.journal_file import read_records, write_records

MIN_DIRECTORIES = 25_000
"""Minimum directories of a workspace from which their growth is recorded."""
MAX_GROWTH = 500_000
"""Maximum by which a limit is raised; in a workspace with even more directories no command runs in a sandbox."""
MAX_ROOTS = 1_024
"""Maximum roots remembered; the oldest is forgotten."""
LIMITS_FILE = "growth"
"""Name of the file in the journal directory."""
MAX_FILE_BYTES = 8_388_608
"""Maximum bytes read of the file; a larger one counts as empty."""


class GrownRoot(Struct, frozen=True):
    """A root of a workspace in which commands created directories."""

    path: Path
    growth: int


class ScanLimits:
    """Growth of workspaces by commands of this process and earlier ones."""

    def __init__(self) -> None:
        self._known: dict[Path, int] = {}
        self._directory: Path | None = None
        self._lock = threading.Lock()

    def open(self, directory: Path) -> None:
        """Read what all processes recorded in a directory, and record there from now on."""
        with self._lock:
            self._directory = directory
            found = read_records(directory / LIMITS_FILE, list[GrownRoot], MAX_FILE_BYTES)
            read = {root.path: root.growth for root in found}
            if read != self._known:
                self._known = self._known | {path: max(it, self._known.get(path, 0)) for path, it in read.items()}

    def growth(self, roots: Sequence[Path]) -> int:
        """Return how many directories are scanned in addition to the usual limit."""
        return max((self._known.get(root, 0) for root in roots), default=0)

    def record(self, roots: Sequence[Path], growth: int, *, before: Sequence[int], after: Sequence[int]) -> None:
        """Record the growth of a workspace by a command.

        `growth` is the value before it. `before` and `after` are the numbers of directories at each depth; those
        after it end at the depth at which the scan before it stopped, if it did.
        """
        if not before or sum(after) < MIN_DIRECTORIES:
            return
        growth = min(growth + max(0, sum(after) - sum(before)), sum(after), MAX_GROWTH)
        if growth <= self.growth(roots):
            return
        with self._lock:
            known = {root: it for root, it in self._known.items() if root not in roots}
            self._known = dict([*known.items(), *((root, growth) for root in roots)][-MAX_ROOTS:])
            if self._directory is not None:
                with suppress(OSError):  # an unwritable home must not prevent the cleanup
                    write_records(self._directory / LIMITS_FILE, [GrownRoot(*one) for one in self._known.items()])


SCAN_LIMITS = ScanLimits()
"""Growth of the workspaces of all sessions."""
