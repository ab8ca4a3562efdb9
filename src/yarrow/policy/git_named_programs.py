"""Programs and hook directories in a workspace that the user's git configuration names or hooks lead to."""

import os
import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from msgspec import Struct

from yarrow.platform.real_path import real_path
from yarrow.policy.git_config import (
    WORKTREE_CONFIG,
    GitSetting,
    global_config_files,
    included_files,
    read_settings,
)
from yarrow.policy.git_executed_settings import COMMANDS, HOOK_DIRECTORIES, is_in_table
from yarrow.policy.git_refs_snapshot import work_tree_of
from yarrow.policy.sandbox.git_directories import common_directory
from yarrow.policy.sandbox.git_internal_files import git_directory_of
from yarrow.policy.symlinks import follow_symlinks

MAX_REPOSITORIES = 64
"""Maximum repositories whose configuration is read, in the given order."""
MAX_PATHS = 500
"""Maximum files, and maximum directories, returned for all configurations."""
INTERPRETER = r"(?:ba|da|k|z)?sh|python[\d.]*|node|deno|bun|perl|ruby|php|source|\.|exec|env"
"""Pattern of programs that execute the file given as their next word."""
TOP_OF_WORK_TREE = ("$(git rev-parse --show-toplevel)", "${PWD}", "$PWD")
"""Texts in command lines that mean the directory in which git runs them."""


class NamedPrograms(Struct, frozen=True):
    """Paths that git executes, including missing ones."""

    files: tuple[Path, ...] = ()
    directories: tuple[Path, ...] = ()
    """Directories whose files git executes."""


def find_named_programs(git_directories: Iterable[Path], roots: Sequence[Path], home: Path) -> NamedPrograms:
    """Return the paths below `roots` named by the configurations of git directories, of the user and of the system.

    The targets of hooks that are symlinks are included.
    """
    shared = list(_read_all(global_config_files(home), home))
    files: dict[Path, None] = {}
    directories: dict[Path, None] = {}
    for directory in list(git_directories)[:MAX_REPOSITORIES]:
        tree = work_tree_of(directory) or directory
        common = common_directory(directory) or directory
        configs = [common / "config", directory / WORKTREE_CONFIG]
        for setting in (*shared, *_read_all(configs, home)):
            if is_in_table(setting, HOOK_DIRECTORIES):
                directories |= dict.fromkeys(_places(setting.value, tree, roots, home=home))
            elif is_in_table(setting, COMMANDS):
                words = _words_that_are_paths(setting, tree)
                files |= dict.fromkeys(path for word in words for path in _places(word, tree, roots, home=home))
        hooks = _linked_hooks(common / "hooks")
        (directories if os.path.islink(common / "hooks") else files).update(  # noqa: PTH114 (never raises)
            dict.fromkeys(path for link in hooks for path in _places(link, tree, roots, home=home))
        )
    return NamedPrograms(tuple(files)[:MAX_PATHS], tuple(directories)[:MAX_PATHS])


def _linked_hooks(hooks: Path) -> Iterator[str]:
    """Yield the path of each hook that is a symlink, or of the directory if it is one, symlink by symlink."""
    if os.path.islink(hooks):  # noqa: PTH114 (never raises)
        yield from follow_symlinks(str(hooks))
        return
    with suppress(OSError), os.scandir(hooks) as entries:
        for entry in islice(entries, MAX_PATHS):
            if entry.is_symlink():
                yield from follow_symlinks(entry.path)


def git_directories_at(roots: Iterable[Path]) -> Iterator[Path]:
    """Yield the git directory of each root itself."""
    for root in roots:
        with suppress(OSError, ValueError):
            yield Path(real_path(git_directory_of(root / ".git")))


def _read_all(configs: Iterable[Path], home: Path) -> Iterator[GitSetting]:
    for config in configs:
        for path in (config, *included_files(config, home)):
            yield from read_settings(path)


def _words_that_are_paths(setting: GitSetting, tree: Path) -> Iterator[str]:
    """Yield the words of a command line that may be paths; a plain name only after an interpreter, as in `sh a.sh`."""
    text = setting.value
    if setting.section == "alias" and not text.startswith("!"):
        return  # an alias for a git command
    for name in TOP_OF_WORK_TREE:
        text = text.replace(name, str(tree))
    text = text.removeprefix("!")
    try:
        lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        words = list(lexer)
    except ValueError:  # an unterminated quotation
        words = text.split()
    is_script = False
    for word in words:
        is_option = word.startswith("-")
        if "/" in word or (is_script and not is_option):
            yield word
        if not is_option:
            is_script = re.fullmatch(INTERPRETER, posixpath.basename(word)) is not None


def _places(name: str, tree: Path, roots: Sequence[Path], *, home: Path) -> Iterator[Path]:
    """Yield the path that a name means, and its real path, if they lie below some roots."""
    if "\0" in name:
        return
    path = home / name[2:] if name.startswith("~/") else tree / name
    for place in dict.fromkeys((os.path.normpath(path), real_path(path))):
        found = Path(place)
        if any(found != root and found.is_relative_to(root) for root in roots):
            yield found
