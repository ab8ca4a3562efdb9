"""Symlinks of a workspace that lead git or a shell to a file it executes, and the files they lead to."""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path

from yarrow.platform.real_path import real_path
from yarrow.policy.sandbox.git_directories import PathDigest, common_directory, digest_path, is_within
from yarrow.policy.startup_files import find_startup_symlinks
from yarrow.policy.symlinks import find_symlinks

MAX_HOOKS = 500
"""Maximum entries of one hook directory among which symlinks are found."""


def find_executed_links(git_directories: Iterable[Path], home: Path, roots: Sequence[Path]) -> dict[Path, PathDigest]:
    """Return what symlinked hooks and startup files of the home lead to below some roots, by path.

    Startup files themselves are mounted read-only, so only the symlinks to them are included. Directories are not.
    """
    places = [path for directory in git_directories for path in hook_targets(directory)]
    startup = (place for link in _startup_symlinks(home) for place in find_symlinks(link))
    found = (path for path in dict.fromkeys((*places, *startup)) if is_within(path, roots))
    return {path: PathDigest(path, digest) for path in found if (digest := link_digest(path)) is not None}


def hook_targets(git_directory: Path) -> Iterator[Path]:
    """Yield the symlinks that each symlinked hook of a git directory leads through, and the real path at the end."""
    hooks = (common_directory(git_directory) or git_directory) / "hooks"
    with suppress(OSError, ValueError), os.scandir(hooks) as entries:
        for entry in islice(entries, MAX_HOOKS):
            if entry.is_symlink():
                hook = Path(entry.path)
                yield from (link for link in find_symlinks(hook) if link.parent != hooks)
                yield Path(real_path(hook))


def link_digest(path: Path) -> str | None:
    """Return a hash of a file or of a symlink's own text, empty if the path does not exist; None for a directory."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return hashlib.sha256(b"link " + os.fsencode(path.readlink())).hexdigest()
    except OSError:
        return ""
    return None if stat.S_ISDIR(mode) else digest_path(path)


@lru_cache(maxsize=8)
def _startup_symlinks(home: Path) -> tuple[Path, ...]:
    """Return the symlinks of the home as they were first seen, because walking its directories takes time."""
    return tuple(find_startup_symlinks(home))
