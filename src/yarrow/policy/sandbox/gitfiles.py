"""Small files of git, such as `.git` of a worktree or submodule, `commondir`, `HEAD` and lists of steps."""

import errno
import os
import stat
from pathlib import Path

from yarrow.platform import system

PATH_BYTES = 8_192
"""Maximum bytes of a file that holds a path."""
GITFILE = "gitdir: "
"""Beginning of a file `.git`."""


def content(path: Path, most: int, *, start: int = 0, follows: bool = False) -> bytes:
    """Return at most `most` bytes of a file from an offset; empty for what is no file.

    A symlink counts as no file, unless `follows` is set.
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


def directory_of(git: Path) -> Path:
    """Return the git directory that a path `.git` is or names. Raises OSError, and ValueError for what git refuses."""
    return git if git.is_dir() else pointed_to(git)


def pointed_to(file: Path) -> Path:
    """Return the directory that a file `.git` names. Raises OSError, and ValueError for what git refuses."""
    text = said(file)
    if not text.startswith(GITFILE):
        raise ValueError(f"{file} does not begin with {GITFILE!r}")
    return file.parent / text.removeprefix(GITFILE)


def said(file: Path) -> str:
    """Return the path that a file of git holds, as git reads it. Raises OSError, and ValueError for a longer file.

    Git keeps blanks, drops ends of lines at the end, and stops at a NUL; the name need not be UTF-8.
    """
    if not file.is_file():  # a FIFO would wait
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(file))
    with file.open("rb") as opened:
        content = opened.read(PATH_BYTES + 1)
    if len(content) > PATH_BYTES:
        raise ValueError(f"{file} has more than {PATH_BYTES:,} bytes")
    return os.fsdecode(content.rstrip(b"\r\n").partition(b"\0")[0])
