"""Work tree that the configuration of a git directory names: only the directory's own one is harmless."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from yarrow.policy.git_config import CONTROL_CHARACTERS
from yarrow.policy.sandbox.directory_scan import is_complete
from yarrow.policy.sandbox.git_files import read_gitfile

MODULES = re.compile(r"(?P<top>.+)/\.git/modules/.+")
"""Git directory of a submodule."""


def is_own_worktree(directory: Path, tree: str, roots: Sequence[Path]) -> bool:
    """Whether `core.worktree` of a git directory names the directory that holds or names that git directory as `.git`.

    With any other one a checkout would write where commands cannot. A submodule that is not checked out has an empty
    work tree, or none.
    """
    if not tree or re.search(CONTROL_CHARACTERS, tree) or "\t" in tree:
        return False
    git, real = Path(os.path.realpath(directory)), Path(os.path.realpath(directory / tree))
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
    """Return the git directory that a symlink or file `.git` leads to."""
    try:
        return Path(os.path.realpath(git if git.is_dir() else read_gitfile(git)))
    except (OSError, ValueError):
        return None


def _is_unused(tree: Path, top: Path) -> bool:
    """Whether nothing is in the work tree of a submodule of a repository, nor is it one of hidden settings."""
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
