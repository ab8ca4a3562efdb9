"""Files that git itself maintains: paths in them, and the registrations of linked worktrees."""

import errno
import os
import shutil
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from yarrow.platform import system
from yarrow.platform.real_path import real_path

MAX_PATH_BYTES = 8_192
"""Maximum bytes of a file that contains a path."""
GITFILE_PREFIX = "gitdir: "
"""Prefix of a `.git` file."""


def read_content(path: Path, most: int, *, start: int = 0, follows: bool = False) -> bytes:
    """Return at most `most` bytes of a file from an offset; empty if it is not a regular file.

    A symlink counts as not regular unless `follows` is set.
    """
    flags = os.O_RDONLY | system.NONBLOCK | system.BASE_FLAGS
    try:
        with os.fdopen(os.open(path, flags if follows else flags | system.NOFOLLOW), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return b""
            file.seek(start)
            return file.read(most)
    except OSError:
        return b""


def git_directory_of(git: Path) -> Path:
    """Return the git directory that a `.git` path is or names. Raises OSError, and ValueError if git rejects it."""
    return git if git.is_dir() else read_gitfile(git)


def read_gitfile(file: Path) -> Path:
    """Return the directory named by a `.git` file. Raises OSError, and ValueError if git rejects it."""
    text = read_path(file)
    if not text.startswith(GITFILE_PREFIX):
        raise ValueError(f"{file} does not start with {GITFILE_PREFIX!r}")
    return file.parent / text.removeprefix(GITFILE_PREFIX)


def read_path(file: Path) -> str:
    """Return the path in a file as git reads it. Raises OSError, and ValueError if the file is too long.

    Git keeps blanks, removes trailing newlines, and stops at a NUL; the name need not be UTF-8.
    """
    if not file.is_file():  # a FIFO would block
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(file))
    with file.open("rb") as opened:
        content = opened.read(MAX_PATH_BYTES + 1)
    if len(content) > MAX_PATH_BYTES:
        raise ValueError(f"{file} has more than {MAX_PATH_BYTES:,} bytes")
    return os.fsdecode(content.rstrip(b"\r\n").partition(b"\0")[0])


KEEP_WORKTREES_SETTINGS = {
    "gc.reflogExpire": "never",
    "gc.reflogExpireUnreachable": "never",
    "gc.worktreePruneExpire": "never",
}
"""Settings that keep `git gc` from writing to the guarded directories of other worktrees, where it would fail."""
MAX_ENTRIES = 20_000
"""Maximum entries of a session's home and /tmp searched for worktrees; others stay registered until a prune."""


def has_other_worktrees(fixed: Iterable[Path]) -> bool:
    """Return whether the read-only directories of a workspace include that of a worktree located elsewhere."""
    return any(path.parent.name == "worktrees" for path in fixed)


def forget_worktrees(places: Sequence[tuple[Path, Path]], roots: Sequence[Path]) -> list[Path]:
    """Remove the registration of each worktree that ends with a session, and return the paths commands saw.

    Otherwise a branch would stay checked out in a directory that no longer exists. `places` are session directories
    with their paths inside; only registrations below `roots`, which commands could write anyway, are removed.
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
    """Return the directory of a worktree in its repository; None if the worktree is the user's."""
    try:
        directory = read_gitfile(file)
        is_named_back = Path(read_path(directory / "gitdir")) == seen
    except (OSError, ValueError):
        return None
    is_real = real_path(directory) == str(directory) and directory.parent.name == "worktrees"
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
