"""Search path for the programs that Yarrow itself starts, without directories where a workspace could plant one."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

MAX_ROOTS = 4_096
"""Workspace roots remembered by this process; the oldest is forgotten."""
MAX_LINKS = 40
"""Symlinks followed one by one of a path; Linux follows no more."""
PATH_VARIABLES = (
    *("PATH", "PYTHONPATH", "PYTHONHOME", "PERL5LIB", "PERLLIB", "RUBYLIB", "NODE_PATH", "CLASSPATH"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES"),
)
"""Variables that list places from which a program, or what it loads, is run."""

_roots: dict[Path, None] = {}


def remember_roots(cwd: Path, extra: Iterable[str] = ()) -> None:
    """Remember the roots of a workspace, with the repositories around them: no program is started from below them.

    `extra` are roots as they are configured.
    """
    for root in (one for text in ("", *extra) for one in _list_with_repositories(cwd, text)):
        _roots.pop(root, None)
        _roots[root] = None
        if len(_roots) > MAX_ROOTS:
            del _roots[next(iter(_roots))]


def find_program(name: str, environment: Mapping[str, str]) -> str | None:
    """Return the absolute path of a program, None when only a workspace has it.

    A name with a slash is looked up as it is, where that is an absolute path.
    """
    import shutil

    path = filter_path(environment.get("PATH", os.defpath))
    found = shutil.which(name, path=path) if path or os.path.dirname(name) else None  # noqa: PTH120 (`Path` drops `./`)
    if found is None or not Path(found).is_absolute():
        return None
    roots = _list_workspaces()
    return None if _leads_into(found, roots) else found


def filter_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment whose search paths lead into no workspace."""
    return {name: filter_path(text) if name in PATH_VARIABLES else text for name, text in environment.items()}


def filter_path(path: str) -> str:
    """Return a search path without relative directories and without those that a workspace's user could have made."""
    roots = _list_workspaces()
    owners = set(_list_foreign_owners(roots))
    return os.pathsep.join(one for one in path.split(os.pathsep) if _is_trusted(one, roots, owners))


def _list_workspaces() -> list[Path]:
    """Return the roots seen so far and the working directory, but for those that hold the home itself.

    The programs of a home are the user's own, and nothing is left to keep apart there.
    """
    home = os.path.realpath(Path.home())
    with suppress(OSError):
        remember_roots(Path.cwd())
    return [root for root in _roots if not Path(home).is_relative_to(root)]


def _list_with_repositories(cwd: Path, text: str) -> Iterator[Path]:
    with suppress(OSError, ValueError, RuntimeError):  # what is no path is refused elsewhere
        real = Path(os.path.realpath(cwd / Path(text).expanduser()))
        yield real
        yield from (above for above in real.parents if (above / ".git").exists())


def _is_trusted(directory: str, roots: list[Path], owners: set[int]) -> bool:
    if not Path(directory).is_absolute() or _leads_into(directory, roots):
        return False
    if not owners:
        return True
    try:
        return Path(directory).stat().st_uid not in owners
    except OSError:
        return True


def _list_foreign_owners(roots: list[Path]) -> Iterator[int]:
    """Yield the users, other than this one and root, whom a workspace belongs to."""
    if sys.platform == "win32":
        return
    for root in roots:
        with suppress(OSError):
            if (owner := root.stat().st_uid) not in (0, os.geteuid()):
                yield owner


def _leads_into(path: str, roots: list[Path]) -> bool:
    """Whether a path, or any symlink on the way to what it leads to, lies in one of the roots."""
    return any(Path(one).is_relative_to(root) for one in _follow_links(path) for root in roots)


def _is_link(path: Path) -> bool:
    try:
        return path.is_symlink()
    except OSError:  # what this user cannot look at, this user cannot run either
        return False


def _follow_links(path: str) -> Iterator[str]:
    """Yield a path, each path that following one more of its symlinks gives, and the real one."""
    step = os.path.normpath(path)
    yield step
    for _ in range(MAX_LINKS):
        # The outermost first, as the system follows them.
        link = next((one for one in (*reversed(Path(step).parents), Path(step)) if _is_link(one)), None)
        if link is None:
            break
        try:
            step = os.path.normpath(link.parent / link.readlink() / Path(step).relative_to(link))
        except OSError:  # gone meanwhile
            break
        yield step
    yield os.path.realpath(path)
