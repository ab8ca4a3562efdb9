"""Finds repositories that a command made, and what in them git would run without being asked.

A repository is made by `git init` or `git clone`, and stays; but whoever then asks for the status of the one around it
has git run what the new one's configuration and hooks say.
"""

import os
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from yarrow.policy.gitconfig import is_harmless
from yarrow.policy.sandbox.gitindex import gitlinks
from yarrow.policy.sandbox.names import HEAD
from yarrow.policy.sandbox.protected import Found, directory_of, entries, modules, said

CONFIGURATIONS = ("config", "config.worktree")
SAMPLE = ".sample"
"""How the names of hooks end that are not run."""

SLACK_NS = 1_000_000_000
"""How much earlier than our own the clock of a file system may be."""

_running: list["Before"] = []
"""What was found before each of the commands that run."""
_since: dict[Path, int] = {}
"""When the first command of this process began in a root, in nanoseconds."""


class Before(Struct, frozen=True):
    """What was there of a root before a command."""

    root: Path
    since: int
    """What was changed before then, in nanoseconds, is the person's."""
    missing: frozenset[Path]
    """What must not come to be."""
    repositories: frozenset[Path]
    """What git takes configuration and hooks from."""


@contextmanager
def running(root: Path, found: Found, elsewhere: Iterable[Before]) -> Generator[Before]:
    """Note what is there while a command runs, without what others made that run beside it.

    `elsewhere` are those of other services. What others made is taken away when they end, and must not come to be in
    the meantime by this one: it is added to what is `missing`.
    """
    missing = frozenset(found.missing)
    repositories = frozenset(directory for _, directory in _repositories(found.repositories))
    for other in (*_running, *elsewhere):
        missing |= {path for path in other.missing if other.root == root or path.is_relative_to(root)}
        repositories -= {path for path in repositories - other.repositories if _is_seen(path, root, other)}
    before = Before(root, _since.setdefault(root, time.time_ns() - SLACK_NS), missing, repositories)
    _running.append(before)
    try:
        yield before
    finally:
        _running[:] = [other for other in _running if other is not before]


def _is_seen(path: Path, root: Path, other: Before) -> bool:
    """Whether another command, before it began, looked where a repository lies that is found in a root."""
    return other.root == root or path.is_relative_to(other.root)


def run_by_git(before: Before, roots: Sequence[Path]) -> list[Path]:
    """Return what git would run, or obey, of repositories that were not there before a command."""
    found: dict[Path, None] = {}
    try:
        gits = [path for path in entries(before.root, Found()) if path.name in {".git", HEAD}]
    except OSError:
        return []
    # By name, so that it is found however many others are put beside it.
    for git, directory in _repositories([before.root / ".git", *gits]):
        if directory in before.repositories or not any(directory.is_relative_to(one) for one in roots):
            continue
        for path in _run_by(directory):
            if _changed(path) >= before.since:
                found[path] = None
            elif _changed(git) >= before.since:
                # What lay there all the time is the person's, unless it came with a `.git`.
                found[path if git.name == ".git" else git] = None
    return list(found)


def _changed(path: Path) -> int:
    """Return when a file was last changed, moved or linked, which no program can set to anything else."""
    try:
        return path.lstat().st_ctime_ns
    except OSError:
        return 0


def _repositories(gits: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    """Yield each `.git`, with each of the real directories that git takes configuration or hooks from for it.

    Of a bare repository it is the `HEAD`, by which git knows one. Those that an index names are among them.
    """
    waiting = dict.fromkeys(reversed(gits))
    seen: set[Path] = set()
    while waiting:
        git, _ = waiting.popitem()
        seen.add(git)
        waiting |= dict.fromkeys(below for name in gitlinks(git) if (below := git.parent / name / ".git") not in seen)
        try:
            directory = Path(os.path.realpath(directory_of(git)))
        except (OSError, ValueError):
            continue
        for one in (directory, *modules(directory)):
            yield git, one
            try:
                yield git, Path(os.path.realpath(one / said(one / "commondir")))
            except (OSError, ValueError):
                continue


def _run_by(directory: Path) -> Iterator[Path]:
    for name in CONFIGURATIONS:
        if os.path.lexists(path := directory / name) and not is_harmless(path):
            yield path
    hooks = directory / "hooks"
    if hooks.is_symlink():
        yield hooks
        return
    try:
        names = [entry.name for entry in os.scandir(hooks)]
    except OSError:
        return
    yield from (hooks / name for name in names if not name.endswith(SAMPLE))
