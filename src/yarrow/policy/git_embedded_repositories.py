"""Git directories hidden in commits and stashes, which git would later restore to the work tree."""

import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import BinaryIO, cast

from msgspec import Struct

from yarrow.platform.search_path import find_program
from yarrow.policy.git_refs_snapshot import (
    MAX_REPOSITORIES,
    RepositoryState,
    WorkspaceRepositories,
    reflog_commits,
    work_tree_of,
)
from yarrow.policy.sandbox.directory_listing import GIT_DIRECTORY_NAMES, GIT_NAMES, is_complete, list_directory
from yarrow.policy.sandbox.git_directories import common_directory

MAX_COMMITS = 10_000
"""Maximum commits read per repository, newest first."""
OUTPUT_BYTES = 67_108_864
"""Maximum bytes of one git output; more raises `UnreadableHistory`."""
MAX_SECONDS = 5.0
"""Time limit in seconds for all git calls about one workspace; exceeding it raises `UnreadableHistory`."""
TIMED_OUT = f"more than {MAX_SECONDS:g} s of reading"
GITLINK, TREE = "160000", "040000"
"""Git modes of a submodule and of a directory."""
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
    """The history exceeds the limits or git cannot read it."""


class TreeChange(Struct, frozen=True):
    """A file, directory or submodule that a commit or an index adds or changes."""

    mode: str
    object: str
    path: str


class GitHistory(Struct, frozen=True):
    """The commits and the index of one git directory."""

    directory: Path
    program: str
    """Path of the git executable."""
    deadline: float
    """Monotonic time at which git is killed."""

    def commit_changes(self, added: Iterable[str], known: Iterable[str], *more: str) -> Iterator[TreeChange]:
        """Yield the changes of commits reachable from `added` but not from `known`. Raises `UnreadableHistory`.

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
        """Yield the index's changes against a commit, or against the empty tree if `head` is empty.

        Raises `UnreadableHistory`.
        """
        against = head or self._empty_tree()
        yield from _parse_changes(self._run_git(("diff-index", "--cached", "-r", "--no-renames", "-z", against)))

    def tracks(self, path: str) -> bool:
        """Return whether the index or any commit contains a path, ignoring case. Raises `UnreadableHistory`."""
        words = ("--", f":(literal,icase){path}")
        if self._run_git(("rev-list", "--all", "--reflog", "--max-count=1", *words)):
            return True
        return bool(self._run_git(("diff-index", "--cached", "--name-only", self._empty_tree(), *words)))

    def _empty_tree(self) -> str:
        return self._run_git(("hash-object", "-t", "tree", "--stdin")).decode().strip()

    def tree_names(self, trees: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return the names in each tree; objects that are not trees are omitted. Raises `UnreadableHistory`."""
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
            # An unreadable parent does not prevent a checkout, so it counts; a directory that is no repository is
            # harmless.
            if self._run_git(IS_REPOSITORY):
                raise UnreadableHistory("objects that git cannot read")
            return b""
        return answer


def find_git() -> str | None:
    """Return the path of git outside all workspaces; None if it is not found."""
    return find_program("git", os.environ)


def _parse_changes(data: bytes) -> Iterator[TreeChange]:
    for mode, name, status, path in _CHANGE.findall(data):
        if status.decode() != _DELETED:
            yield TreeChange(mode.decode(), name.decode(), os.fsdecode(path))


def _parse_tree(tree: bytes, size: int) -> Iterator[str]:
    """Yield the names in a tree object, each entry of which ends with an object id of `size` bytes."""
    at = 0
    while found := _ENTRY.match(tree, at):
        yield os.fsdecode(found[1])
        at = found.end() + size


MAX_DIRECTORIES = 20_000
"""Maximum directories inspected per repository; with more, the repository is reported in `unchecked`."""
COMMON_NAMES = ("objects", "refs")
"""Names that a later run may add to a work tree without being noticed."""
_GIT_NAME = re.compile(rf"(?:^|/)(?:{'|'.join(map(re.escape, sorted(GIT_NAMES)))})(?:/|$)", re.IGNORECASE)


class EmbeddedRepositories(Struct, frozen=True):
    """Git directories that a run added to repositories."""

    directories: tuple[Path, ...] = ()
    """Directories that git would treat as git directories after checking them out."""
    unchecked: tuple[str, ...] = ()
    """Repositories that could not be checked, each with the reason."""


def find_embedded_repositories(before: WorkspaceRepositories, after: WorkspaceRepositories) -> EmbeddedRepositories:
    """Return what a run added to the repositories of a workspace, given their states before and after it."""
    is_partial = any(state.is_partial for state in after.states.values())
    if (after == before and not is_partial) or (program := find_git()) is None:
        return EmbeddedRepositories()
    search = _Search(program, before, after)
    if len(after.states) >= MAX_REPOSITORIES > len(before.states):
        search.unchecked.append(f"more than {MAX_REPOSITORIES:,} repositories")
    for directory, state in after.states.items():
        if state != before.states.get(directory) or state.is_partial:
            search.check(directory)
    # A submodule's commit needs no reference: the index of the enclosing repository names it.
    for directory in after.states if search.submodules else ():
        search.check_submodules(directory)
    search.check_partial(
        [path for path, names in after.partial_directories.items() if names != before.partial_directories.get(path)]
    )
    return EmbeddedRepositories(tuple(search.directories), tuple(search.unchecked))


class _Search:
    """Search of the repositories of one workspace."""

    def __init__(self, program: str, before: WorkspaceRepositories, after: WorkspaceRepositories) -> None:
        self._program = program
        self._deadline = time.monotonic() + MAX_SECONDS
        self._before = before
        self._after = after
        self._read: dict[Path, set[str]] = {}
        """Commits already read, by repository; its worktrees share them."""
        self.directories: dict[Path, None] = {}
        self.submodules: set[str] = set()
        """Commits of submodules."""
        self.unchecked: list[str] = []

    def check(self, directory: Path) -> None:
        """Check what changed in a git directory."""
        had, has = self._before.states.get(directory, RepositoryState()), self._after.states[directory]
        read = self._read.setdefault(common_directory(directory) or directory, set())
        appended = reflog_commits(directory, had)
        added = (has.commits | (appended or set())) - had.commits - read
        read |= added
        more = (*(["--all"] if has.is_partial else ()), *(["--reflog"] if appended is None else ()))
        history = GitHistory(directory, self._program, self._deadline)
        with self._recording_unchecked(directory):
            found = [*history.commit_changes(added, had.commits, *more)] if added or more else []
            if has.index and has.index != had.index:
                found += history.index_changes(had.head)
            self.submodules |= {change.object for change in found if change.mode == GITLINK}
            self._add(directory, _embedded_directories(history, found, had.head))
        replacing = sorted(one.partition(" ")[0] for one in has.replacements - had.replacements)
        self.directories |= dict.fromkeys(directory / name for name in replacing)

    def check_submodules(self, directory: Path) -> None:
        """Check the commits of submodules that a git directory contains."""
        history = GitHistory(directory, self._program, self._deadline)
        with self._recording_unchecked(directory):
            known = self._before.states.get(directory, self._after.states[directory]).commits
            self._add(
                directory, _embedded_directories(history, list(history.commit_changes(self.submodules, known)), "")
            )

    def check_partial(self, parts: Sequence[Path]) -> None:
        """Check whether git tracks what incomplete directories of a work tree lack to be git directories."""
        trees = {tree: directory for directory in self._after.states if (tree := work_tree_of(directory)) is not None}
        for path in parts:
            tree = next((above for above in path.parents if above in trees), None)
            if tree is not None:
                history = GitHistory(trees[tree], self._program, self._deadline)
                with self._recording_unchecked(trees[tree]):
                    held = self._after.partial_directories[path]
                    lacking = GIT_DIRECTORY_NAMES - {name.casefold() for name in held}
                    within = path.relative_to(tree)
                    if is_complete((*held, *(name for name in lacking if history.tracks(str(within / name))))):
                        self.directories[path] = None

    @contextmanager
    def _recording_unchecked(self, directory: Path) -> Generator[None]:
        try:
            yield
        except UnreadableHistory as error:
            self.unchecked.append(f"{directory}: {error}")

    def _add(self, directory: Path, paths: Iterable[PurePath]) -> None:
        tree = work_tree_of(directory) or directory
        self.directories |= dict.fromkeys(tree / path for path in sorted(paths))


def _embedded_directories(history: GitHistory, found: Sequence[TreeChange], head: str) -> set[PurePath]:
    """Return the directories that changes make complete or nearly so, counting existing files.

    Raises `UnreadableHistory`.
    """
    names: dict[PurePath, set[str]] = {}
    for change in found:
        if _GIT_NAME.search(change.path):
            path = PurePath(change.path)
            for above in (path, *path.parents):
                if above.name.casefold() in GIT_NAMES and above.parent.name:
                    names.setdefault(above.parent, set()).add(above.name)
    if len(names) > MAX_DIRECTORIES:
        raise UnreadableHistory(f"more than {MAX_DIRECTORIES:,} directories")
    trees = [
        (path, change.object) for change in found if change.mode == TREE and (path := PurePath(change.path)) in names
    ]
    trees += [(path, f"{head}:{path}") for path in names if head and "\n" not in str(path)]
    held = history.tree_names([tree for _, tree in trees]) if trees else {}
    for path, tree in trees:
        names[path].update(held.get(tree, ()))
    work = work_tree_of(history.directory)
    return {path for path, all_names in names.items() if _is_nearly_complete({*all_names, *_git_names_at(work, path)})}


def _is_nearly_complete(names: Iterable[str]) -> bool:
    """Return whether these names make a git directory, or would together with one of `COMMON_NAMES`."""
    lowercase = {name.casefold() for name in names}
    return is_complete(lowercase) or any(
        is_complete({*lowercase, name}) for name in COMMON_NAMES if "head" in lowercase
    )


def _git_names_at(work: Path | None, path: PurePath) -> tuple[str, ...]:
    if work is not None:
        with suppress(OSError):
            return list_directory(str(work / path)).git_names
    return ()
