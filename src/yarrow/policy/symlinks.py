"""Symlinks in a path, followed one at a time: each step, and the first that commands could have created or changed."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from yarrow.platform.real_path import real_path

MAX_SYMLINKS = 40
"""Maximum symlinks followed in a path; Linux follows no more."""


def follow_symlinks(path: str) -> Iterator[str]:
    """Yield an absolute path, then the path after each further symlink in it is followed; the last has none.

    A dangling path ends where it can no longer be followed.
    """
    if ".." not in path.split("/"):
        yield path
    done, waiting, followed = "", path.strip("/").split("/"), 0
    while waiting:
        name = waiting.pop(0)
        if name in {"", "."}:
            continue
        if name == "..":
            done = done.rpartition("/")[0]
            continue
        try:
            target = os.readlink(f"{done}/{name}")  # noqa: PTH115 (strings throughout)
        except OSError:  # not a symlink
            done = f"{done}/{name}"
            continue
        followed += 1
        if followed > MAX_SYMLINKS:
            return
        if target.startswith("/"):
            done = ""
        waiting = [*target.split("/"), *waiting]
        while waiting[:1] in (["."], [".."], [""]):
            done = done.rpartition("/")[0] if waiting.pop(0) == ".." else done
        if ".." not in waiting:  # otherwise what it skips may be a symlink
            yield "/".join((done, *filter(None, waiting))) or "/"


def find_writable_symlink(path: Path, roots: Sequence[Path] = ()) -> Path | None:
    """Return the first symlink on an absolute path that commands can write; None if there is none.

    Commands can write to `roots`, which are real, and to any repository: a session may have run in each. A place that
    contains the home does not count, because commands have no sandbox in it and are asked.
    """
    home = Path(real_path(Path.home()))
    closed = [root for root in roots if not home.is_relative_to(root)]
    for link in find_symlinks(path):
        if any(link.is_relative_to(root) for root in closed) or _repository_of(link, home):
            return link
    return None


def find_symlinks(path: Path) -> Iterator[Path]:
    """Yield the real location of each symlink in a path and in the targets of those, in the order of the system."""
    real, waiting, followed = path.anchor, [*reversed(path.parts[1:])], 0
    while waiting and followed <= MAX_SYMLINKS:
        name = waiting.pop()
        if name == os.pardir:
            real = os.path.dirname(real)  # noqa: PTH120 (strings throughout)
            continue
        step = os.path.join(real, name)  # noqa: PTH118 (strings throughout)
        try:
            target = os.readlink(step)  # noqa: PTH115 (strings throughout)
        except (OSError, ValueError):  # the usual case: not a symlink
            real = step
            continue
        followed += 1
        yield Path(step)
        waiting += reversed(Path(target).parts)  # an absolute target starts with the root, which `join` begins at


def _repository_of(link: Path, home: Path) -> Path | None:
    tops = (above for above in link.parents if os.path.lexists(above / ".git"))
    return next((top for top in tops if not home.is_relative_to(top)), None)


def follow_links(path: Path) -> Iterator[Path]:
    """Yield a path and, symlink by symlink, what it leads to."""
    for _ in range(MAX_SYMLINKS):
        yield path
        try:
            target = path.readlink()
            path = Path(real_path(path.parent)) / target
        except (OSError, ValueError):  # the last one is not a symlink
            return
