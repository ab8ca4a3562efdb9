"""Check of the `core.worktree` setting of git directories: only a directory's own work tree is harmless."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from yarrow.platform.real_path import real_path
from yarrow.policy.git_config import CONTROL_CHARACTERS
from yarrow.policy.sandbox.directory_scan import is_complete
from yarrow.policy.sandbox.git_files import read_gitfile

MODULES = re.compile(r"(?P<top>.+)/\.git/modules/.+")
"""Pattern of a submodule's git directory."""


def is_own_worktree(directory: Path, tree: str, roots: Sequence[Path]) -> bool:
    """Return whether `core.worktree` names the directory whose `.git` is, or points to, that git directory.

    With any other value, a checkout would write where commands cannot. A submodule that is not checked out has an empty
    work tree, or none.
    """
    if not tree or re.search(CONTROL_CHARACTERS, tree) or "\t" in tree:
        return False
    git, real = Path(real_path(directory)), Path(real_path(directory / tree))
    if not any(real.is_relative_to(root) for root in roots) or _is_in_git_directory(real, roots):
        return False
    if git == real / ".git" or _git_directory_named_by(real / ".git") == git:
        return True
    module = MODULES.fullmatch(str(git))
    return module is not None and _is_unused(real, Path(module["top"]))


def _is_in_git_directory(tree: Path, roots: Sequence[Path]) -> bool:
    for place in (tree, *tree.parents):
        if not any(place.is_relative_to(root) for root in roots):
            return False
        if place.name.casefold() == ".git" or _may_be_git_directory(place):
            return True
    return False


def _may_be_git_directory(place: Path) -> bool:
    try:
        return is_complete(os.listdir(place))  # noqa: PTH208 (no Path is needed)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _git_directory_named_by(git: Path) -> Path | None:
    """Return the git directory that a `.git` symlink or file points to."""
    try:
        return Path(real_path(git if git.is_dir() else read_gitfile(git)))
    except (OSError, ValueError):
        return None


def _is_unused(tree: Path, top: Path) -> bool:
    """Return whether a submodule's work tree is below the repository, in no hidden directory, and empty or missing."""
    if tree == top or not tree.is_relative_to(top):
        return False
    if any(name.startswith(".") for name in tree.relative_to(top).parts):
        return False
    try:
        return not os.listdir(tree)  # noqa: PTH208 (no Path is needed)
    except FileNotFoundError:
        return True
    except OSError:
        return False
