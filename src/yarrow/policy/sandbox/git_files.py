"""Small files of git, such as `.git` of a worktree or submodule, `commondir`, `HEAD` and lists of steps."""

import errno
import os
import stat
from pathlib import Path

from yarrow.platform import system

MAX_PATH_BYTES = 8_192
"""Maximum bytes of a file that holds a path."""
GITFILE_PREFIX = "gitdir: "
"""Beginning of a file `.git`."""


def read_content(path: Path, most: int, *, start: int = 0, follows: bool = False) -> bytes:
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


def git_directory_of(git: Path) -> Path:
    """Return the git directory that a path `.git` is or names. Raises OSError, and ValueError for what git refuses."""
    return git if git.is_dir() else read_gitfile(git)


def read_gitfile(file: Path) -> Path:
    """Return the directory that a file `.git` names. Raises OSError, and ValueError for what git refuses."""
    text = read_path(file)
    if not text.startswith(GITFILE_PREFIX):
        raise ValueError(f"{file} does not begin with {GITFILE_PREFIX!r}")
    return file.parent / text.removeprefix(GITFILE_PREFIX)


def read_path(file: Path) -> str:
    """Return the path that a file of git holds, as git reads it. Raises OSError, and ValueError for a longer file.

    Git keeps blanks, drops ends of lines at the end, and stops at a NUL; the name need not be UTF-8.
    """
    if not file.is_file():  # a FIFO would wait
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(file))
    with file.open("rb") as opened:
        content = opened.read(MAX_PATH_BYTES + 1)
    if len(content) > MAX_PATH_BYTES:
        raise ValueError(f"{file} has more than {MAX_PATH_BYTES:,} bytes")
    return os.fsdecode(content.rstrip(b"\r\n").partition(b"\0")[0])
