"""Write protection of git files: refuses writes that would make git execute or obey something."""

import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from yarrow.platform.real_path import real_path
from yarrow.policy.sandbox.directory_listing import GIT_DIRECTORY_NAMES, HEAD, is_complete

GIT_PROTECTED = frozenset({"hooks", "config", "config.worktree", "commondir"})
"""Names in a git directory that make git execute something or look elsewhere."""


def is_executed_by_git(real: Path, root: Path, roots: Sequence[Path]) -> bool:
    """Return whether writing a real path below a workspace root would plant something that git executes or obeys."""
    return (
        _is_included(real, root)
        or _affects_git_directory(real)
        or _is_hook_target(real, root)
        or _affects_common_directory(real, roots)
    )


def has_git_name(path: Path) -> bool:
    """Return whether a path contains a name that makes or configures a git directory."""
    return not (GIT_DIRECTORY_NAMES | GIT_PROTECTED).isdisjoint(map(str.casefold, path.parts))


def _affects_git_directory(real: Path) -> bool:
    """Return whether a file would complete a git directory, or is executed or obeyed in one that may be completed."""
    from yarrow.policy.sandbox.git_directories import is_named_as_bare  # only writes need it

    parts = real.parts
    for place, name in enumerate(map(str.casefold, parts)):
        if name not in GIT_DIRECTORY_NAMES | GIT_PROTECTED or parts[place - 1].casefold() == ".git":
            continue
        directory = Path(*parts[:place])
        names = _names(directory)
        if is_complete((*names, name)) or (name in GIT_PROTECTED and is_named_as_bare(directory, names)):
            return True
    return False


def _affects_common_directory(real: Path, roots: Sequence[Path]) -> bool:
    """Return whether a file is a configuration or hook in a directory that some git directory's `commondir` names.

    Names are checked first, because this scans the workspace for all git directories. A root that is a whole file
    system, such as `/` where everything is writable, is not scanned.
    """
    names = {name.casefold() for name in real.parts}
    if GIT_PROTECTED.isdisjoint(names):
        return False
    from yarrow.policy.sandbox.git_directories import (  # few writes have such a name
        common_directory,
        scan_git_directories,
    )

    above = frozenset(real.parents)
    found = scan_git_directories([root for root in roots if root != Path(root.anchor)]).git_names
    pointing = (directory for directory, held in found.items() if any(name.casefold() == "commondir" for name in held))
    return any(common_directory(directory) in above for directory in pointing)


def _is_hook_target(real: Path, root: Path) -> bool:
    """Return whether a hook of an enclosing repository is a symlink to a file."""
    # Imported here because only writes need these.
    from yarrow.policy.sandbox.git_internal_files import git_directory_of
    from yarrow.policy.sandbox.links_to_executed_files import hook_targets

    for above in _directories_around(real, root):
        with suppress(OSError, ValueError):
            if real in hook_targets(git_directory_of(above / ".git")):
                return True
    return False


def _is_included(real: Path, root: Path) -> bool:
    """Return whether a file is a global configuration, or included by one or by that of an enclosing repository."""
    from yarrow.policy.git_config import global_config_files, included_files  # only writes need these

    home = Path.home()
    around = [above / ".git/config" for above in _directories_around(real, root)]
    shared = global_config_files(home)
    included = (path for config in (*around, *shared) for path in included_files(config, home))
    return any(Path(real_path(path)) == real for path in chain(shared, included))


def _directories_around(real: Path, root: Path) -> list[Path]:
    """Return a root and the directories between it and a path."""
    return [above for above in dict.fromkeys((root, *real.parents)) if above.is_relative_to(root)]


def _names(directory: Path) -> list[str]:
    """Return the names in a directory; if it cannot be listed, those that make a git directory."""
    try:
        return os.listdir(directory)  # noqa: PTH208 (no Path is needed)
    except PermissionError:
        return [name for name in (*GIT_DIRECTORY_NAMES, HEAD) if os.path.lexists(directory / name)]
    except OSError:
        return []
