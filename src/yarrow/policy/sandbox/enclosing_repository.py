"""Repository around a working directory that is one of its subdirectories."""

import os
from collections.abc import Iterable
from pathlib import Path

from yarrow.policy.sandbox.hidden_directories import SYSTEM_DIRECTORIES

READ_ONLY_DIRECTORIES = ("/etc", "/dev", "/proc", "/sys")
"""Directories that stay read-only also where they are kept in a repository, as by etckeeper."""


def find_enclosing_repository(cwd: Path, apart: Iterable[Path]) -> Path | None:
    """Return the top directory of the repository that holds a real path; None for the top itself, or without one.

    A repository that holds one of `apart`, such as the home, or a directory of the system is none. As for git, its
    owner is the owner of the path: otherwise any user could open `/tmp` to commands with a `.git` there.
    """
    if ".git" in cwd.parts or _has_git(cwd):
        return None
    top = next((above for above in cwd.parents if _has_git(above)), None)
    if (
        top is None
        or str(top) in ("/", *SYSTEM_DIRECTORIES)
        or any(top.is_relative_to(name) for name in READ_ONLY_DIRECTORIES)
    ):
        return None
    is_apart = not any(place.is_relative_to(top) for place in apart)
    return top if is_apart and _identity(top) == _identity(top / ".git") == _identity(cwd) else None


def _has_git(directory: Path) -> bool:
    git = f"{directory}/.git"
    return os.path.isfile(git) or os.path.lexists(f"{git}/HEAD")  # noqa: PTH113 (for each directory above)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the file system and the owner, None for what cannot be looked at."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_uid
