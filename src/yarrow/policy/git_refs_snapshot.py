"""State of a repository before and after a run: references, stashes and rebase todo lists."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path

from msgspec import Struct

from yarrow.platform.real_path import real_path
from yarrow.policy.deep_tree_operations import walk_tree
from yarrow.policy.git_config import core_worktree_of
from yarrow.policy.sandbox.directory_listing import is_complete
from yarrow.policy.sandbox.git_directories import common_directory, scan_git_directories
from yarrow.policy.sandbox.git_internal_files import read_content, read_gitfile, read_path

MAX_REPOSITORIES = 1_000
"""Maximum git directories of one workspace, those nearest to a root first; later ones are ignored."""
MAX_REFERENCES = 5_000
"""Maximum loose references read per git directory; with more, git itself has to read them."""
MAX_OTHER_FILES = 5_000
"""Maximum files read per git directory that git also takes for references, although they are not below `refs`."""
PACKED_BYTES = 16_777_216
"""Maximum bytes read of `packed-refs`; if it is larger, git itself has to read it."""
LOG_BYTES = 1_048_576
"""Maximum bytes read of what was appended to a reflog; with more, git itself has to read it."""
REFERENCE_BYTES = 4_096
"""Maximum bytes read of one reference, or of a file such as `FETCH_HEAD`."""
REFLOGS = ("logs/HEAD", "logs/refs/stash")
"""Reflogs of commits that references may no longer name."""
RARE_NAMES = (frozenset({"head"}), frozenset({"commondir"}), frozenset({"objects", "refs"}))
"""Sets of lowercase names; every git directory contains one of the sets, other directories rarely do."""
AUTOSTASHES = ("rebase-merge/autostash", "rebase-apply/autostash")
REPLACE_PREFIX = "refs/replace/"
"""Prefix of references to objects that git uses in place of others."""
_OBJECT_ID = re.compile(rb"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b", re.IGNORECASE)
_PACKED_REF = re.compile(rb"^([0-9a-f]{40,64}) (\S+)$", re.MULTILINE | re.IGNORECASE)
_ORDINARY_SYMBOLIC_REF = re.compile(rb"ref:\s*refs/")
_PSEUDO_REF = re.compile(r"[A-Z][A-Z_]*")
"""Name of a reference at the top of a git directory, such as `ORIG_HEAD`."""
_NOT_REFERENCES = frozenset({"objects", "refs", "logs", "modules", "worktrees", "lfs"})
"""Directories of a git directory that contain no references, or whose references are read otherwise."""


class RepositoryState(Struct, frozen=True):
    """State of one git directory, as far as it determines what can be checked out."""

    index: tuple[int, ...] = ()
    """Identity of the index; empty if missing."""
    head: str = ""
    """Commit that is checked out; empty if there is none."""
    commits: frozenset[str] = frozenset()
    """Objects named by references."""
    replacements: frozenset[str] = frozenset()
    """References to objects that replace others, each with its object."""
    reflog_sizes: tuple[int, ...] = (0,) * len(REFLOGS)
    """Size in bytes of each of `REFLOGS`."""
    is_partial: bool = False
    """True if there are more references than were read."""


class WorkspaceRepositories(Struct, frozen=True):
    """The repositories of a workspace."""

    states: dict[Path, RepositoryState] = {}
    """State of each git directory."""
    partial_directories: dict[Path, tuple[str, ...]] = {}
    """Git names in work tree directories that lack others to be git directories."""


def scan_repositories(roots: Sequence[Path]) -> WorkspaceRepositories:
    """Read the states of a workspace's repositories, and of the repository that a root is a worktree of."""
    names = scan_git_directories(roots).git_names
    complete = frozenset(path for path, held in names.items() if is_complete(held))
    outside = (path for root in roots if (path := _external_git_directory(root)) is not None)
    found = dict.fromkeys((*outside, *sorted(complete, key=_depth)))
    references: dict[Path, _References] = {}
    return WorkspaceRepositories(
        {directory: _repository_state(directory, references) for directory in list(found)[:MAX_REPOSITORIES]},
        {
            path: held
            for path, held in names.items()
            if path not in complete and _has_rare_names(held) and complete.isdisjoint(path.parents)
        },
    )


def reflog_commits(directory: Path, before: RepositoryState) -> set[str] | None:
    """Return the commits appended to the reflogs of a git directory since `before`; None if there are too many."""
    found = set[str]()
    for log, size in zip(REFLOGS, before.reflog_sizes, strict=True):
        now = _size_of(directory / log)
        start = size if size <= now else 0  # a shorter one was rewritten
        if now - start > LOG_BYTES:
            return None
        found.update(
            one.decode().lower() for one in _OBJECT_ID.findall(read_content(directory / log, LOG_BYTES, start=start))
        )
    return found


def work_tree_of(directory: Path) -> Path | None:
    """Return the work tree of a git directory; None if it is bare."""
    if directory.name == ".git":
        return directory.parent
    with suppress(OSError, ValueError):
        if directory.parent.name == "worktrees":
            return Path(read_path(directory / "gitdir")).parent
        if (tree := core_worktree_of(directory / "config")) is not None:
            return Path(os.path.normpath(directory / tree))
    return None


class _References(Struct, frozen=True):
    """References and the objects they name."""

    objects: dict[str, str]
    is_partial: bool


def _repository_state(directory: Path, known: dict[Path, _References]) -> RepositoryState:
    common = common_directory(directory) or directory
    if common not in known:
        known[common] = _references(common)
    own = known[common] if common == directory else _loose_references(directory)
    references = known[common].objects | own.objects
    pseudo = b"\n".join(
        read_content(directory / name, REFERENCE_BYTES) for name in (*_pseudo_refs(directory), *AUTOSTASHES)
    )
    return RepositoryState(
        index=_identity(directory / "index"),
        head=_resolve_head(read_content(directory / "HEAD", REFERENCE_BYTES), references),
        commits=frozenset((*references.values(), *(one.decode().lower() for one in _OBJECT_ID.findall(pseudo)))),
        replacements=frozenset(f"{name} {one}" for name, one in references.items() if name.startswith(REPLACE_PREFIX)),
        reflog_sizes=tuple(_size_of(directory / log) for log in REFLOGS),
        is_partial=known[common].is_partial or own.is_partial,
    )


def _external_git_directory(root: Path) -> Path | None:
    """Return the git directory that the `.git` file of a root points to; None if the root has no such file."""
    file = root / ".git"
    with suppress(OSError, ValueError):
        return Path(real_path(read_gitfile(file)))
    return None


def _has_rare_names(names: Iterable[str]) -> bool:
    """Return whether these names are rare in ordinary directories."""
    lowercase = {name.casefold() for name in names}
    return any(rare <= lowercase for rare in RARE_NAMES)


def _depth(path: Path) -> tuple[int, Path]:
    return len(path.parts), path


def _references(common: Path) -> _References:
    """Return the references of a repository; loose ones override packed ones."""
    packed = common / "packed-refs"
    objects = {
        os.fsdecode(found[2]): found[1].decode().lower()
        for found in _PACKED_REF.finditer(read_content(packed, PACKED_BYTES))
    }
    loose = _loose_references(common)
    return _References(objects | loose.objects, loose.is_partial or _size_of(packed) > PACKED_BYTES)


def _loose_references(directory: Path) -> _References:
    """Return the references in files; partial if git itself must read some, since they lead elsewhere."""
    objects: dict[str, str] = {}
    is_partial = False
    names = (Path(above, name) for above, _, names in walk_tree(directory / "refs") for name in names)
    others = _files_named_as_references(directory)
    for path in chain(islice(names, MAX_REFERENCES), islice(others, MAX_OTHER_FILES)):
        content = read_content(path, REFERENCE_BYTES, follows=True)
        if found := _OBJECT_ID.match(content):
            objects[str(path.relative_to(directory))] = found[0].decode().lower()
        is_symbolic = content.startswith(b"ref:") and not _ORDINARY_SYMBOLIC_REF.match(content)
        is_partial = is_partial or is_symbolic or path.is_symlink()
    return _References(objects, is_partial or next(names, None) is not None)


def _files_named_as_references(directory: Path) -> Iterator[Path]:
    """Yield other files of a git directory: for git, `origin/main` means the file of that name before a branch."""
    for above, subdirectories, names in walk_tree(directory):
        if above == str(directory):
            subdirectories[:] = [name for name in subdirectories if name not in _NOT_REFERENCES]
        yield from (Path(above, name) for name in names if name != "HEAD" and not _PSEUDO_REF.fullmatch(name))


def _pseudo_refs(directory: Path) -> list[str]:
    with suppress(OSError):
        return [name for name in os.listdir(directory) if _PSEUDO_REF.fullmatch(name)]  # noqa: PTH208 (no Path is needed)
    return []


def _resolve_head(content: bytes, references: dict[str, str]) -> str:
    text = os.fsdecode(content).strip()
    return references.get(text.removeprefix("ref:").strip(), "") if text.startswith("ref:") else text


def _identity(path: Path) -> tuple[int, ...]:
    try:
        status = path.lstat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _size_of(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


TODO_FILES = ("rebase-merge/git-rebase-todo", "sequencer/todo", "rebase-apply/git-rebase-todo")
"""Todo lists in a git directory."""
MAX_TODO_BYTES = 1_048_576
"""Maximum bytes read of a todo list; a longer one counts as a command itself, since git reads all of it."""
TOO_MANY_STEPS = "more steps than were checked"
_COMMAND = re.compile(rb"^[ \t]*(?:exec|x)(?:[ \t\r]+(.*?))?[ \t\r]*$", re.MULTILINE)


def read_exec_commands(directories: Iterable[Path]) -> dict[Path, tuple[str, ...]]:
    """Return the commands in the todo lists of some git directories, by list."""
    lists = (directory / name for directory in directories for name in TODO_FILES)
    return {path: commands for path in lists if (commands := tuple(_commands(path)))}


def new_exec_commands(
    before: Mapping[Path, Sequence[str]], after: Mapping[Path, Sequence[str]]
) -> list[tuple[Path, str]]:
    """Return the commands added to todo lists since they were read before."""
    return [
        (path, one)
        for path, commands in after.items()
        for one in dict.fromkeys(commands)
        if one not in before.get(path, ())
    ]


def _commands(path: Path) -> Iterator[str]:
    text = read_content(path, MAX_TODO_BYTES + 1, follows=True)  # git follows symlinks too
    is_cut = len(text) > MAX_TODO_BYTES
    for found in _COMMAND.finditer(text.rpartition(b"\n")[0] if is_cut else text):
        yield f"exec {(found[1] or b'').decode(errors='replace')}"
    if is_cut:
        yield TOO_MANY_STEPS
