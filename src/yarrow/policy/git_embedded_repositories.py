"""Git directories that git itself would bring into a work tree, from a commit or an index that a run changed.

Nothing can be quarantined there: a commit that holds a bare repository is one like any other. So they are named.
"""

import os
import re
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath

from msgspec import Struct

from yarrow.policy.git_config import core_worktree_of
from yarrow.policy.git_history import GITLINK, MAX_SECONDS, TREE, GitHistory, TreeChange, UnreadableHistory, find_git
from yarrow.policy.git_state import MAX_REPOSITORIES, RepositoryState, WorkspaceRepositories, reflog_commits
from yarrow.policy.sandbox.directory_scan import GIT_DIRECTORY_NAMES, GIT_NAMES, is_complete, list_directory
from yarrow.policy.sandbox.git_directories import common_directory
from yarrow.policy.sandbox.git_files import read_path

MAX_DIRECTORIES = 20_000
"""Directories of one repository that are looked at closer; with more it is `unchecked`."""
COMMON_NAMES = ("objects", "refs")
"""Names that a later run may add to a work tree without being noticed."""
_GIT_NAME = re.compile(rf"(?:^|/)(?:{'|'.join(map(re.escape, sorted(GIT_NAMES)))})(?:/|$)", re.IGNORECASE)


class EmbeddedRepositories(Struct, frozen=True):
    """What a run added to repositories."""

    directories: tuple[Path, ...] = ()
    """Directories that git would take for a git directory once it has checked them out."""
    unchecked: tuple[str, ...] = ()
    """Repositories that could not be checked, each with the reason."""


def find_embedded_repositories(before: WorkspaceRepositories, after: WorkspaceRepositories) -> EmbeddedRepositories:
    """Return what a run added to the repositories of a workspace, by a look before and one after it."""
    is_partial = any(state.is_partial for state in after.states.values())
    if (after == before and not is_partial) or (program := find_git()) is None:
        return EmbeddedRepositories()
    search = _Search(program, before, after)
    if len(after.states) >= MAX_REPOSITORIES > len(before.states):
        search.unchecked.append(f"more than {MAX_REPOSITORIES:,} repositories")
    for directory, state in after.states.items():
        if state != before.states.get(directory) or state.is_partial:
            search.check(directory)
    # The commit of a submodule needs no reference: the index of the repository around it names it.
    for directory in after.states if search.submodules else ():
        search.check_submodules(directory)
    search.check_partial(
        [path for path, names in after.partial_directories.items() if names != before.partial_directories.get(path)]
    )
    return EmbeddedRepositories(tuple(search.directories), tuple(search.unchecked))


class _Search:
    """Looks through the repositories of one workspace."""

    def __init__(self, program: str, before: WorkspaceRepositories, after: WorkspaceRepositories) -> None:
        self._program = program
        self._deadline = time.monotonic() + MAX_SECONDS
        self._before = before
        self._after = after
        self._read: dict[Path, set[str]] = {}
        """Commits, by repository: its worktrees have them in common."""
        self.directories: dict[Path, None] = {}
        self.submodules: set[str] = set()
        """Commits of submodules."""
        self.unchecked: list[str] = []

    def check(self, directory: Path) -> None:
        """Look at what became other in a git directory."""
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
        """Look at those commits of submodules that a git directory has."""
        history = GitHistory(directory, self._program, self._deadline)
        with self._recording_unchecked(directory):
            known = self._before.states.get(directory, self._after.states[directory]).commits
            self._add(
                directory, _embedded_directories(history, list(history.commit_changes(self.submodules, known)), "")
            )

    def check_partial(self, parts: Sequence[Path]) -> None:
        """Look whether git has what directories of a work tree lack to be git directories."""
        trees = {tree: directory for directory in self._after.states if (tree := _work_tree(directory)) is not None}
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
        tree = _work_tree(directory) or directory
        self.directories |= dict.fromkeys(tree / path for path in sorted(paths))


def _embedded_directories(history: GitHistory, found: Sequence[TreeChange], head: str) -> set[PurePath]:
    """Return the directories that changes make complete or nearly so, with what is beside them. Raises Unread."""
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
    work = _work_tree(history.directory)
    return {path for path, all_names in names.items() if _is_nearly_complete({*all_names, *_git_names_at(work, path)})}


def _is_nearly_complete(names: Iterable[str]) -> bool:
    """Whether git takes a directory with these names for a git directory, or would with one more that is ordinary."""
    lowercase = {name.casefold() for name in names}
    return is_complete(lowercase) or any(
        is_complete({*lowercase, name}) for name in COMMON_NAMES if "head" in lowercase
    )


def _git_names_at(work: Path | None, path: PurePath) -> tuple[str, ...]:
    if work is not None:
        with suppress(OSError):
            return list_directory(str(work / path)).git_names
    return ()


def _work_tree(directory: Path) -> Path | None:
    """Return the work tree of a git directory; None for a bare one."""
    if directory.name == ".git":
        return directory.parent
    with suppress(OSError, ValueError):
        if directory.parent.name == "worktrees":
            return Path(read_path(directory / "gitdir")).parent
        if (tree := core_worktree_of(directory / "config")) is not None:
            return Path(os.path.normpath(directory / tree))
    return None
