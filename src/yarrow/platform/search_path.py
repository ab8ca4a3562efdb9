"""Search path for programs that Yarrow itself starts, without directories where commands could plant one."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from yarrow.platform.real_path import real_path

MAX_ROOTS = 4_096
"""Maximum workspace roots remembered by this process; the oldest is forgotten."""
MAX_LINKS = 40
"""Maximum symlinks followed one at a time in a path; Linux follows no more."""
PATH_VARIABLES = (
    *("PATH", "PYTHONPATH", "PYTHONHOME", "PERL5LIB", "PERLLIB", "RUBYLIB", "NODE_PATH", "CLASSPATH"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES"),
)
"""Variables that list directories or files from which a program, or what it loads, is run."""
PROJECT_ENVIRONMENTS = frozenset({".venv", "venv", ".tox", ".nox", ".direnv", "node_modules"})
"""Names of directories with the programs of one project."""
PACKAGE_MANAGERS = ("/opt/homebrew", "/usr/local", "/home/linuxbrew/.linuxbrew")
"""Repositories that are no projects; neither is one in a dot directory of the home, such as `~/.pyenv`."""

_roots: dict[Path, None] = {}


def remember_roots(cwd: Path, extra: Iterable[str] = ()) -> None:
    """Remember the roots of a workspace and of the repositories around them: no program below them is started.

    `extra` are roots as written in the settings.
    """
    for root in (one for text in ("", *extra) for one in _list_with_repositories(cwd, text)):
        _roots.pop(root, None)
        _roots[root] = None
        if len(_roots) > MAX_ROOTS:
            del _roots[next(iter(_roots))]


def find_program(name: str, environment: Mapping[str, str]) -> str | None:
    """Return the absolute path of a program; None if it is not found, or only in a workspace or another project.

    A name with a slash is not searched for and must be an absolute path.
    """
    import shutil

    is_named = bool(os.path.dirname(name))  # noqa: PTH120 (`Path` would drop the slash of `./name`)
    path = filter_path(environment.get("PATH", os.defpath))
    found = shutil.which(name, path=path) if path or is_named else None
    if found is None or not Path(found).is_absolute() or _leads_into(found, _list_workspaces()):
        return None
    return None if not is_named and _leads_into_project(found) else found


def filter_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment whose search paths do not lead into a workspace."""
    return {name: filter_path(text) if name in PATH_VARIABLES else text for name, text in environment.items()}


def filter_path(path: str) -> str:
    """Return a search path without relative directories and those that commands or a workspace's owner could write."""
    roots = _list_workspaces()
    owners = set(_list_foreign_owners(roots))
    return os.pathsep.join(one for one in path.split(os.pathsep) if _is_trusted(one, roots, owners))


def _list_workspaces() -> list[Path]:
    """Return the roots seen so far and the working directory, except those that contain the home directory.

    The programs in a home directory are the user's own, so nothing needs to be kept apart there.
    """
    home = real_path(Path.home())
    with suppress(OSError):
        remember_roots(Path.cwd())
    return [root for root in _roots if not Path(home).is_relative_to(root)]


def _list_with_repositories(cwd: Path, text: str) -> Iterator[Path]:
    with suppress(OSError, ValueError, RuntimeError):  # an invalid path is rejected elsewhere
        real = Path(real_path(cwd / Path(text).expanduser()))
        yield real
        yield from (above for above in real.parents if (above / ".git").exists())


def _is_trusted(directory: str, roots: list[Path], owners: set[int]) -> bool:
    if not Path(directory).is_absolute() or _leads_into(directory, roots) or _leads_into_project(directory):
        return False
    if not owners:
        return True
    try:
        return Path(directory).stat().st_uid not in owners
    except OSError:
        return True


def _list_foreign_owners(roots: list[Path]) -> Iterator[int]:
    """Yield the owners of workspaces other than this user and root."""
    if sys.platform == "win32":
        return
    for root in roots:
        with suppress(OSError):
            if (owner := root.stat().st_uid) not in (0, os.geteuid()):
                yield owner


def _leads_into(path: str, roots: list[Path]) -> bool:
    """Return whether a path, or any symlink on the way to its target, is in one of the roots."""
    return any(Path(one).is_relative_to(root) for one in _follow_links(path) for root in roots)


def _leads_into_project(path: str) -> bool:
    """Return whether a path, or any symlink on the way, is in a project: commands of any session may write there.

    A project is a repository, or a directory with an environment of its own. A directory that contains the home is not
    a project, because no sandbox lets commands write there.
    """
    home = Path(real_path(Path.home()))
    return any(_project_of(Path(one), home) for one in _follow_links(path))


def _project_of(path: Path, home: Path) -> Path | None:
    for one in (path, *path.parents):
        top = one.parent if one.name in PROJECT_ENVIRONMENTS else one
        if home.is_relative_to(top):
            continue
        if one.name in PROJECT_ENVIRONMENTS and top.name != "lib":  # packages of a whole machine or version of Node
            return top
        if os.path.lexists(one / ".git") and str(one) not in PACKAGE_MANAGERS and not _is_dot_directory(one, home):
            return one
    return None


def _is_dot_directory(path: Path, home: Path) -> bool:
    return path.parent == home and path.name.startswith(".")


def _is_link(path: Path) -> bool:
    try:
        return path.is_symlink()
    except OSError:  # a path that this user cannot inspect cannot be run either
        return False


def _follow_links(path: str) -> Iterator[str]:
    """Yield a path, the path after following each of its symlinks in turn, and its real path."""
    step = os.path.normpath(path)
    yield step
    for _ in range(MAX_LINKS):
        # The outermost first, as the system does.
        link = next((one for one in (*reversed(Path(step).parents), Path(step)) if _is_link(one)), None)
        if link is None:
            break
        try:
            step = os.path.normpath(link.parent / link.readlink() / Path(step).relative_to(link))
        except OSError:  # removed meanwhile
            break
        yield step
    yield real_path(path)
