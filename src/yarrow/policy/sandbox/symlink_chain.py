"""Symlinks in a path, followed one at a time."""

import os
from collections.abc import Iterator

MAX_SYMLINKS = 40
"""Maximum symlinks followed in one path; Linux follows no more."""


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
