"""Finds repositories that a command made, and what in them git would run without being asked.

A repository is made by `git init` or `git clone`, and stays; but whoever then asks for the status of the one around it
has git run what the new one's configuration and hooks say.
"""

import os
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from yarrow.policy.gitconfig import is_harmless
from yarrow.policy.sandbox.gitindex import gitlinks
from yarrow.policy.sandbox.protected import Found, entries, modules, pointed_to, said

CONFIGURATIONS = ("config", "config.worktree")
SAMPLE = ".sample"
"""How the names of hooks end that are not run."""

SLACK_NS = 1_000_000_000
"""How much earlier than our own the clock of a file system may be."""

_running: dict[Path, list["Before"]] = {}
"""What was found of a root before each of the commands that run there."""
_since: dict[Path, int] = {}
"""When the first command of this process began in a root, in nanoseconds."""


class Before(Struct):
    """What was there of a root before a command."""

    root: Path
    missing: list[Path]
    repositories: set[Path]
    """What git takes configuration and hooks from."""


@contextmanager
def running(root: Path, found: Found) -> Generator[Before]:
    """Note what is there while a command runs, without what others made that run beside it.

    Theirs is taken away when they end, and must not come to be in the meantime by this one: it is added to what is
    `missing`.
    """
    before = Before(root, found.missing, {directory for _, directory in _repositories(root)})
    _since.setdefault(root, time.time_ns() - SLACK_NS)
    others = _running.setdefault(root, [])
    for other in others:
        before.missing += [path for path in other.missing if path not in before.missing]
        before.repositories &= other.repositories
    others.append(before)
    try:
        yield before
    finally:
        others[:] = [other for other in others if other is not before]


def run_by_git(before: Before, roots: Sequence[Path]) -> list[Path]:
    """Return what git would run, or obey, of repositories that were not there before a command."""
    found: dict[Path, None] = {}
    since = _since[before.root]
    for git, directory in _repositories(before.root):
        if directory not in before.repositories and any(directory.is_relative_to(one) for one in roots):
            paths = list(_run_by(directory))
            # One that only was not met before is the person's: neither it nor what it says was touched.
            found |= dict.fromkeys(path for path in paths if max(_changed(git), _changed(path)) >= since)
    return list(found)


def _changed(path: Path) -> int:
    """Return when a file was last changed, moved or linked, which no program can set to anything else."""
    try:
        return path.lstat().st_ctime_ns
    except OSError:
        return 0


def _repositories(root: Path) -> Iterator[tuple[Path, Path]]:
    """Yield each `.git`, with each of the real directories that git takes configuration or hooks from for it."""
    try:
        gits = [root / ".git", *(path for path in entries(root, Found()) if path.name == ".git")]
    except OSError:
        return
    waiting = dict.fromkeys(reversed(gits))
    seen: set[Path] = set()
    while waiting:
        git, _ = waiting.popitem()
        seen.add(git)
        waiting |= dict.fromkeys(below for name in gitlinks(git) if (below := git.parent / name / ".git") not in seen)
        try:
            directory = Path(os.path.realpath(git if git.is_dir() else pointed_to(git)))
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
