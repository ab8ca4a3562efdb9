"""Reads by git itself what commits and an index would check out; it executes nothing and reads no remote."""

import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from msgspec import Struct

from yarrow.platform.search_path import find_program

MAX_COMMITS = 10_000
"""Commits that are read of one repository, the newest first."""
OUTPUT_BYTES = 67_108_864
"""Bytes of one answer of git; a longer one is `UnreadableHistory`."""
MAX_SECONDS = 5.0
"""Time for all questions about one workspace; what takes longer is `UnreadableHistory`."""
TIMED_OUT = f"more than {MAX_SECONDS:g} s of reading"
GITLINK, TREE = "160000", "040000"
"""Modes of a submodule and of a directory."""
IS_REPOSITORY = ("rev-parse", "--absolute-git-dir")
_DELETED = "D"
_CHANGE = re.compile(rb":\d+ (\d+) [0-9a-f]+ ([0-9a-f]+) ([A-Z])\d*\0([^\0]+)\0")
_ENTRY = re.compile(rb"\d+ ([^\0]+)\0")
_CONFIG = {
    "core.fsmonitor": "false",
    "core.commitGraph": "false",  # a command can write it
    "safe.directory": "*",
}
_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "HOME": os.devnull,
    "LC_ALL": "C",
}


class UnreadableHistory(Exception):
    """There is more than the limits allow to read, or git cannot read it."""


class TreeChange(Struct, frozen=True):
    """A file, directory or submodule that a commit or an index adds or changes."""

    mode: str
    object: str
    path: str


class GitHistory(Struct, frozen=True):
    """The commits and the index of one git directory."""

    directory: Path
    program: str
    """Path of git."""
    deadline: float
    """Time of the monotonic clock at which git is ended."""

    def commit_changes(self, added: Iterable[str], known: Iterable[str], *more: str) -> Iterator[TreeChange]:
        """Yield what commits change that are reached from some objects, and not from others. Raises Unread.

        `more` are options of `git rev-list` that add objects.
        """
        words = "\n".join((*added, *(f"^{one}" for one in known)))
        listing = ("rev-list", "--ignore-missing", f"--max-count={MAX_COMMITS + 1}", *more, "--stdin")
        commits = self._run_git(listing, f"{words}\n".encode())
        if commits.count(b"\n") > MAX_COMMITS:
            raise UnreadableHistory(f"more than {MAX_COMMITS:,} commits")
        if commits:
            differing = ("diff-tree", "--stdin", "--no-commit-id", "--root", "-r", "-t", "-m", "--no-renames", "-z")
            yield from _parse_changes(self._run_git(differing, commits))

    def index_changes(self, head: str) -> Iterator[TreeChange]:
        """Yield what the index changes of a commit, of the empty tree without one. Raises Unread."""
        against = head or self._empty_tree()
        yield from _parse_changes(self._run_git(("diff-index", "--cached", "-r", "--no-renames", "-z", against)))

    def tracks(self, path: str) -> bool:
        """Whether the index or any commit has a path, in any case. Raises Unread."""
        words = ("--", f":(literal,icase){path}")
        if self._run_git(("rev-list", "--all", "--reflog", "--max-count=1", *words)):
            return True
        return bool(self._run_git(("diff-index", "--cached", "--name-only", self._empty_tree(), *words)))

    def _empty_tree(self) -> str:
        return self._run_git(("hash-object", "-t", "tree", "--stdin")).decode().strip()

    def tree_names(self, trees: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return the names in each tree; none for what is not a tree. Raises Unread."""
        data = self._run_git(("cat-file", "--batch"), "".join(f"{tree}\n" for tree in trees).encode())
        found: dict[str, tuple[str, ...]] = {}
        at = 0
        for tree in trees:
            end = data.find(b"\n", at)
            words = data[at:end].rsplit(b" ", 2)
            at = end + 1
            if len(words) == 3 and words[2].isdigit():
                size = int(words[2])
                if words[1] == b"tree":
                    found[tree] = tuple(_parse_tree(data[at : at + size], len(words[0]) // 2))
                at += size + 1
        return found

    def _run_git(self, words: Sequence[str], given: bytes = b"") -> bytes:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise UnreadableHistory(TIMED_OUT)
        settings = [word for key, value in _CONFIG.items() for word in ("-c", f"{key}={value}")]
        with tempfile.TemporaryFile() as question:
            question.write(given)
            question.seek(0)
            process = subprocess.Popen(
                [self.program, *settings, *words],
                cwd="/",
                env={**_ENVIRONMENT, "PATH": os.defpath, "GIT_DIR": str(self.directory), "GIT_WORK_TREE": "/"},
                stdin=question,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        timer = threading.Timer(left, process.kill)
        timer.start()
        with process:
            try:
                answer = cast("BinaryIO", process.stdout).read(OUTPUT_BYTES + 1)
                if len(answer) > OUTPUT_BYTES:
                    process.kill()
                    raise UnreadableHistory(f"more than {OUTPUT_BYTES:,} bytes")
            finally:
                process.wait()
                timer.cancel()
        if process.returncode < 0:
            raise UnreadableHistory(TIMED_OUT)
        if process.returncode and words != IS_REPOSITORY:
            # An unreadable parent keeps nobody from checking a commit out; what is no repository cannot be used at all.
            if self._run_git(IS_REPOSITORY):
                raise UnreadableHistory("objects that git cannot read")
            return b""
        return answer


def find_git() -> str | None:
    """Return the path of git, of none that a workspace holds; None without one."""
    return find_program("git", os.environ)


def _parse_changes(data: bytes) -> Iterator[TreeChange]:
    for mode, name, status, path in _CHANGE.findall(data):
        if status.decode() != _DELETED:
            yield TreeChange(mode.decode(), name.decode(), os.fsdecode(path))


def _parse_tree(tree: bytes, size: int) -> Iterator[str]:
    """Yield the names of a tree, whose entries end with the name of an object of `size` bytes."""
    at = 0
    while found := _ENTRY.match(tree, at):
        yield os.fsdecode(found[1])
        at = found.end() + size
