"""Worktrees: those outside the workspace that git must leave alone, and those that end with the session."""

import os
import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from yarrow.policy.sandbox.git_files import read_gitfile, read_path

KEEP_WORKTREES_SETTINGS = {
    "gc.reflogExpire": "never",
    "gc.reflogExpireUnreachable": "never",
    "gc.worktreePruneExpire": "never",
}
"""Settings with which `git gc` does not write to the guarded directories of other worktrees, where it would fail."""
MAX_ENTRIES = 20_000
"""Entries of a session's home and /tmp that are looked at for worktrees; later ones stay registered until a prune."""


def has_other_worktrees(fixed: Iterable[Path]) -> bool:
    """Whether read-only directories of a workspace include one of a worktree that lies elsewhere."""
    return any(path.parent.name == "worktrees" for path in fixed)


def forget_worktrees(places: Sequence[tuple[Path, Path]], roots: Sequence[Path]) -> list[Path]:
    """Remove the registration of each worktree that ends with a session, and return where commands saw them.

    Without that a branch stays checked out in a directory that no longer exists. `places` are directories of the
    session with their paths inside; only registrations below `roots` are removed, which commands could write anyway.
    """
    forgotten: list[Path] = []
    for directory, inside in places:
        for file in _git_files(directory):
            seen = inside / file.relative_to(directory)
            if (registration := _find_registration(file, seen, roots)) is not None:
                shutil.rmtree(registration, ignore_errors=True)
                forgotten.append(seen.parent)
    return forgotten


def _find_registration(file: Path, seen: Path, roots: Sequence[Path]) -> Path | None:
    """Return the directory in a repository that a worktree belongs to; None for one that the user has."""
    try:
        directory = read_gitfile(file)
        is_named_back = Path(read_path(directory / "gitdir")) == seen
    except (OSError, ValueError):
        return None
    is_real = os.path.realpath(directory) == str(directory) and directory.parent.name == "worktrees"
    is_users = os.path.lexists(seen) or (directory / "locked").exists()
    is_open = any(directory.is_relative_to(root) for root in roots) and (directory.parent.parent / "HEAD").exists()
    return directory if is_named_back and is_real and is_open and not is_users else None


def _git_files(directory: Path) -> Iterator[Path]:
    waiting, looked = deque([str(directory)]), 0
    while waiting:
        with suppress(OSError), os.scandir(waiting.popleft()) as entries:
            for entry in entries:
                looked += 1
                if looked > MAX_ENTRIES:
                    return
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.name == ".git":
                    yield Path(entry.path)
