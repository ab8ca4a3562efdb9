"""Write protection inside a sandbox for files that the next start of Yarrow obeys, by any name."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from yarrow.policy.obeyed import files_at
from yarrow.policy.sandbox.aliases import named, of_several_names
from yarrow.policy.sandbox.protected import Found, between


def keep(paths: Sequence[Path], roots: Sequence[Path], found: Sequence[Found]) -> None:
    """Add to what was found of each root the paths that lie in it, and hard links to them.

    Raises OSError where one is named through a symlink in the root itself: a command could put another in its place.
    """
    files: list[Path] = []
    for path in paths:
        for root, one in zip(roots, found, strict=True):
            if path != root and path.is_relative_to(root):
                files.append(path)
                _fix(_unmovable(path, root), root, one)
    if not (
        identities := {identity for path in files for file in files_at(path) if (identity := of_several_names(file))}
    ):
        return
    for root, one in zip(roots, found, strict=True):
        for path in named(root, identities):
            _fix(path, root, one)


def _fix(path: Path, root: Path, found: Found) -> None:
    found.pinned = sorted({*found.pinned, *(above for above in between(root, path) if above.is_dir())})
    if not os.path.lexists(path):
        if path not in found.missing:
            found.missing.append(path)
    elif path not in found.fixed:
        found.fixed.append(path)


def _unmovable(path: Path, root: Path) -> Path:
    """Return what to make read-only for a path; a symlink on the way cannot be, but the directory it lies in."""
    for step in (*reversed(between(root, path)), path):
        if step.is_symlink():
            if step.parent == root:
                words = "is a symlink to what Yarrow runs, which a sandbox cannot protect: name the real path"
                raise OSError(errno.ELOOP, words, str(step))
            return step.parent
    return path
