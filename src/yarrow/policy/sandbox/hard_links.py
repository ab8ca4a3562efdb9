"""Other names of protected files in a workspace: hard links of secrets and startup files, targets of symlinked keys."""

import errno
import os
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from yarrow.policy.sandbox.directory_listing import MAX_DIRECTORIES
from yarrow.policy.sandbox.home_secrets import find_home_secrets, resolve_symlinks
from yarrow.policy.sandbox.protected_paths import ScanResult, directories_between
from yarrow.policy.sandbox.scan_limits import SCAN_LIMITS
from yarrow.policy.startup_files import files_at


def add_hard_links(roots: Sequence[Path], found: Sequence[ScanResult]) -> None:
    """Add to each root's scan result the further names there of secret files with hard links."""
    wanted = {identity for one in found for path in one.secrets if (identity := hard_link_identity(path))}
    if not wanted:  # the usual case
        return
    for root, one in zip(roots, found, strict=True):
        for path in find_by_identity(root, wanted):
            if path not in one.secrets:
                one.secrets.append(path)
                one.pinned += directories_between(root, path)
        one.pinned = sorted(set(one.pinned))


def pin_credential_parents(home: Path, roots: Sequence[Path], found: Sequence[ScanResult]) -> None:
    """Add to each root's scan result the parents of the home's keys, which are hidden by path."""
    keys = find_home_secrets(home)
    for path in (*keys, *resolve_symlinks(keys)):
        text = str(path)  # strings compare faster than paths
        for root, one in zip(roots, found, strict=True):
            if text.startswith(f"{root}/"):
                one.pinned = sorted({*one.pinned, *directories_between(root, path)})


def protect_startup_files(paths: Sequence[Path], roots: Sequence[Path], found: Sequence[ScanResult]) -> None:
    """Add to each root's scan result the startup paths in it, and hard links to them.

    Raises OSError if a path leads through a symlink at the top of a root, because a command could replace it.
    """
    files: list[Path] = []
    for path in paths:
        for root, one in zip(roots, found, strict=True):
            if path != root and path.is_relative_to(root):
                files.append(path)
                _protect(_protectable_path(path, root), root, one)
    linked = (hard_link_identity(file) for path in files for file in files_at(path))
    identities = {identity for identity in linked if identity is not None}
    if not identities:
        return
    for root, one in zip(roots, found, strict=True):
        for path in find_by_identity(root, identities):
            _protect(path, root, one)


def _protect(path: Path, root: Path, found: ScanResult) -> None:
    found.pinned = sorted({*found.pinned, *(above for above in directories_between(root, path) if above.is_dir())})
    if not os.path.lexists(path):
        if path not in found.absent:
            found.absent.append(path)
    elif path not in found.read_only:
        found.read_only.append(path)


def _protectable_path(path: Path, root: Path) -> Path:
    """Return the path to make read-only; for a symlink on the way, which cannot be, the directory that contains it."""
    for step in (*reversed(directories_between(root, path)), path):
        if step.is_symlink():
            if step.parent == root:
                words = "is a symlink to a file that Yarrow runs, which a sandbox cannot protect: use the real path"
                raise OSError(errno.ELOOP, words, str(step))
            return step.parent
    return path


def hard_link_identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file with hard links; None for anything else."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) and status.st_nlink > 1 else None


def find_by_identity(root: Path, wanted: set[tuple[int, int]]) -> Iterator[Path]:
    """Yield the paths below a root of files with these devices and inodes, nearest first."""
    numbers = {number for _, number in wanted}
    waiting, looked = deque([str(root)]), 0
    limit = MAX_DIRECTORIES + SCAN_LIMITS.growth((root,))
    while waiting and looked < limit:
        looked += 1
        with suppress(OSError), os.scandir(waiting.popleft()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.inode() in numbers:
                    status = entry.stat(follow_symlinks=False)
                    if (status.st_dev, status.st_ino) in wanted:
                        yield Path(entry.path)
