"""Secret files recognized by their links: targets of symlinks with secret names, and hard links of secret files."""

import os
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from yarrow.policy.sandbox.protected_paths import ScanResult, find_entries
from yarrow.policy.sandbox.secret_symlink_targets import SecretSymlinks, is_recorded
from yarrow.policy.secret_names import SecretFiles

CACHE_SECONDS = 1.0
"""Seconds for which the scan of a root is cached, because one call asks several times."""
MAX_CACHED_ROOTS = 64
"""Maximum cached scans; if exceeded, the cache is cleared."""


class _RootScan(Struct, frozen=True):
    """Result of scanning a root."""

    at: float
    places: tuple[Path, ...]
    """Directories that contain symlinks with secret names, and the root itself."""
    files: frozenset[tuple[int, int]]
    """Device and inode of secret files that have more than one name."""


_cache: dict[tuple[Path, SecretFiles], _RootScan] = {}


class SecretLinks:
    """The secret links of one workspace; created per search, because it scans each directory only once."""

    def __init__(self, writable: Sequence[Path], readable: Sequence[Path], secrets: SecretFiles) -> None:
        """Scan the writable roots as a sandbox does, and the readable directories without their subdirectories."""
        looks = [_scan_cached(root, secrets) for root in writable]
        places = [place for look in looks for place in look.places]
        self._linked = SecretSymlinks((*places, *readable), secrets, writable=writable)
        self._files = frozenset[tuple[int, int]]().union(*(look.files for look in looks))

    def has(self, real: str) -> bool:
        """Return whether a real path is the target of such a symlink, or a hard link of a secret file."""
        return self._linked.has(real) or (bool(self._files) and _identity(real) in self._files)


def _scan_cached(root: Path, secrets: SecretFiles) -> _RootScan:
    if root == root.parent:  # the file system root belongs to no workspace
        return _RootScan(0.0, (root,), frozenset())
    known = _cache.get((root, secrets))
    now = time.monotonic()
    if known is None or now - known.at > CACHE_SECONDS:
        if len(_cache) >= MAX_CACHED_ROOTS:
            _cache.clear()
        known = _cache[root, secrets] = _scan(root, secrets, now)
    return known


def _scan(root: Path, secrets: SecretFiles, now: float) -> _RootScan:
    places, files = {root}, set[tuple[int, int]]()
    with suppress(OSError):  # if the root cannot be listed, searches cannot read it either
        for path in find_entries(root, ScanResult(), secrets):
            status = _status(str(path)) if secrets.has(path.name) else None
            if status is not None and stat.S_ISLNK(status.st_mode):
                places.add(path.parent)
            elif status is not None and _has_hard_links(status) and not is_recorded(path):
                files.add((status.st_dev, status.st_ino))
    return _RootScan(now, tuple(places), frozenset(files))


def _has_hard_links(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_nlink > 1


def _identity(path: str) -> tuple[int, int] | None:
    status = _status(path)
    return (status.st_dev, status.st_ino) if status is not None else None


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (OSError, ValueError):  # it is gone or not a valid path
        return None
