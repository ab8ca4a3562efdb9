"""Files that git itself maintains: paths in them, worktrees and their registrations, and the index."""

import errno
import hashlib
import os
import re
import shutil
import stat
import struct
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from yarrow.platform import system
from yarrow.platform.real_path import real_path
from yarrow.policy.git_config import CONTROL_CHARACTERS
from yarrow.policy.sandbox.directory_listing import is_complete

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


MODULES = re.compile(r"(?P<top>.+)/\.git/modules/.+")
"""Pattern of a submodule's git directory."""


def is_own_worktree(directory: Path, tree: str, roots: Sequence[Path]) -> bool:
    """Return whether `core.worktree` names the directory whose `.git` is, or points to, that git directory.

    With any other value, a checkout would write where commands cannot. A submodule that is not checked out has an empty
    work tree, or none.
    """
    if not tree or re.search(CONTROL_CHARACTERS, tree) or "\t" in tree:
        return False
    git, real = Path(real_path(directory)), Path(real_path(directory / tree))
    if not any(real.is_relative_to(root) for root in roots) or _is_in_git_directory(real, roots):
        return False
    if git == real / ".git" or _git_directory_named_by(real / ".git") == git:
        return True
    module = MODULES.fullmatch(str(git))
    return module is not None and _is_unused(real, Path(module["top"]))


def _is_in_git_directory(tree: Path, roots: Sequence[Path]) -> bool:
    for place in (tree, *tree.parents):
        if not any(place.is_relative_to(root) for root in roots):
            return False
        if place.name.casefold() == ".git" or _may_be_git_directory(place):
            return True
    return False


def _may_be_git_directory(place: Path) -> bool:
    try:
        return is_complete(os.listdir(place))  # noqa: PTH208 (no Path is needed)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _git_directory_named_by(git: Path) -> Path | None:
    """Return the git directory that a `.git` symlink or file points to."""
    try:
        return Path(real_path(git_directory_of(git)))
    except (OSError, ValueError):
        return None


def _is_unused(tree: Path, top: Path) -> bool:
    """Return whether a submodule's work tree is below the repository, in no hidden directory, and empty or missing."""
    if tree == top or not tree.is_relative_to(top):
        return False
    if any(name.startswith(".") for name in tree.relative_to(top).parts):
        return False
    try:
        return not os.listdir(tree)  # noqa: PTH208 (no Path is needed)
    except FileNotFoundError:
        return True
    except OSError:
        return False


MAX_INDEX_BYTES = 67_108_864
"""Maximum bytes read of an index."""
MAX_COMPRESSED_ENTRIES = 20_000
"""Maximum entries read of a version 4 index, which must be parsed sequentially; a name beyond them is unknown."""
MAX_RECORDED_BYTES = 1_048_576
"""Maximum bytes of a file that is compared with the index; a larger one counts as changed."""
SETTLED_NANOSECONDS = 2_000_000_000
"""Age of the last change, in nanoseconds, from which on another change shows in the change time."""
_LONGEST_NAME, _EXTENDED = 0xFFF, 0x4000
_HEADER, _FLAGS = struct.Struct(">4sII"), struct.Struct(">H")
_STATUS_BYTES, _SHA1_BYTES, _LONGEST_ID = 40, 20, 32
_UNKNOWN = (b"",)
"""Result for an index that cannot be read."""
StatIdentity = tuple[int, int, int, int]
"""Device, inode, change time and size."""
MAX_DIFFERING = 200_000
"""Maximum files remembered to differ from their record; from then on no file counts as recorded."""
_differing = set[tuple[str, int, int, int, int]]()
"""Path, device, inode, modification time and size of the files that differed from their record."""


def is_tracked(path: Path) -> bool:
    """Return whether the index of a file's repository contains it; true if the index cannot be read."""
    return bool(_entries_of(path))


def is_recorded(path: Path) -> bool:
    """Return whether a file's content matches the index, so that git shows it to anyone who asks.

    A file transformed by a filter, such as one that git encrypts, differs from its record.

    A file that this process saw to differ stays so until it changes itself: commands can write the index, and a record
    that matches afterwards would confirm what they guessed of its content.
    """
    try:
        status = path.lstat()
    except OSError:
        return False
    seen = (str(path), status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
    if seen in _differing:
        return False
    is_same = _matches_record(path, status)
    if not is_same:
        _differing.add(seen)
    return is_same and len(_differing) < MAX_DIFFERING


def _matches_record(path: Path, status: os.stat_result) -> bool:
    entries = _entries_of(path)
    if len(entries) != 1 or entries == _UNKNOWN:  # several: git has only one, but a command can write many guesses
        return False
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_RECORDED_BYTES:
        return False
    is_settled = time.time_ns() - status.st_ctime_ns > SETTLED_NANOSECONDS
    ids = (_blob_ids if is_settled else _blob_ids.__wrapped__)(path, _stat_identity(status))
    return entries[0].endswith(ids)


def _entries_of(path: Path) -> tuple[bytes, ...]:
    """Return the bytes that end with the object id, for each entry of a file in its repository's index."""
    for above in path.parents:
        git = above / ".git"
        if os.path.lexists(git):
            try:
                index = git_directory_of(git) / "index"
                status = index.stat()
            except (OSError, ValueError):
                return ()
            if not stat.S_ISREG(status.st_mode):
                return ()
            return _read_entries(str(index), os.fsencode(path.relative_to(above)), _stat_identity(status))
    return ()


def _stat_identity(status: os.stat_result) -> StatIdentity:
    return status.st_dev, status.st_ino, status.st_ctime_ns, status.st_size


@lru_cache(maxsize=256)
def _blob_ids(path: Path, _now: StatIdentity) -> tuple[bytes, ...]:
    """Return the ids that git assigns to a file's content; empty if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | system.NOFOLLOW | system.BASE_FLAGS | system.NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(MAX_RECORDED_BYTES + 1)
    except OSError:
        return ()
    blob = b"blob %d\0" % len(content) + content
    return hashlib.sha1(blob, usedforsecurity=False).digest(), hashlib.sha256(blob).digest()


@lru_cache(maxsize=256)
def _read_entries(index: str, name: bytes, _now: StatIdentity) -> tuple[bytes, ...]:
    """Return the index entries of a name, cached until the index changes."""
    try:
        with open(index, "rb") as file:
            data = file.read(MAX_INDEX_BYTES)
        magic, version, count = _HEADER.unpack_from(data)
    except (OSError, struct.error):
        return ()
    if magic != b"DIRC":
        return ()
    if version <= 3:
        return tuple(_plain_entries(data, name, is_extensible=version > 2))
    try:
        return tuple(_compressed_entries(data, name, count))
    except (IndexError, ValueError, struct.error):
        return _UNKNOWN


def _plain_entries(data: bytes, name: bytes, *, is_extensible: bool) -> Iterator[bytes]:
    """Yield the bytes that end with the id before a name.

    Between them are the name's length and, in version 3, optional further flags.
    """
    at = data.find(name + b"\0")
    while at >= _HEADER.size:
        for end in (at - _FLAGS.size, at - 2 * _FLAGS.size) if is_extensible else (at - _FLAGS.size,):
            flags = _FLAGS.unpack_from(data, end)[0]
            if flags & _LONGEST_NAME == len(name) and bool(flags & _EXTENDED) == (end < at - _FLAGS.size):
                yield data[max(end - _LONGEST_ID, 0) : end]
        at = data.find(name + b"\0", at + 1)


def _compressed_entries(data: bytes, name: bytes, count: int) -> Iterator[bytes]:
    """Yield the ids of a name in version 4, where each name is stored as its difference from the previous one.

    Names are sorted, so nothing after the name is read.

    Raises IndexError, ValueError and struct.error for any other format, such as one with SHA-256, and for a name that
    is too far behind.
    """
    at, current = _HEADER.size, b""
    for number in range(count):
        if number >= MAX_COMPRESSED_ENTRIES:
            raise ValueError(number)
        start, flags_at = at + _STATUS_BYTES, at + _STATUS_BYTES + _SHA1_BYTES
        flags = _FLAGS.unpack_from(data, flags_at)[0]
        at = flags_at + _FLAGS.size * (2 if flags & _EXTENDED else 1)
        left_out = data[at] & 0x7F
        while data[at] & 0x80:
            at += 1
            left_out = (left_out + 1 << 7) + (data[at] & 0x7F)
        end = data.index(b"\0", at + 1)
        current = current[: len(current) - left_out] + data[at + 1 : end]
        if current == name:
            yield data[start:flags_at]
        elif current > name:
            return
        at = end + 1
