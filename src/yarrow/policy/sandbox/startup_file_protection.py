"""Write protection inside a sandbox for files that Yarrow's next start obeys, under any name."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from yarrow.policy.sandbox.hard_links import find_by_identity, hard_link_identity
from yarrow.policy.sandbox.protected_paths import ScanResult, directories_between
from yarrow.policy.startup_files import files_at


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
    if not (
        identities := {identity for path in files for file in files_at(path) if (identity := hard_link_identity(file))}
    ):
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
