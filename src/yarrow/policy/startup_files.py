"""Files executed or obeyed at startup: by Yarrow, outside its own directory, and by shells, in a home directory."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

from yarrow.platform.real_path import real_path
from yarrow.platform.search_path import find_program
from yarrow.policy.deep_tree_operations import walk_tree

MAX_PATHS = 512
"""Maximum paths protected by one service; later ones are ignored."""
MAX_FILES = 1_000
"""Maximum files of one directory whose hard links are searched for."""
MAX_ENTRIES = 1_000
"""Maximum entries of autostart directories among which symlinks are found."""
SCRIPT_SUFFIXES = frozenset(
    {".py", ".sh", ".bash", ".zsh", ".fish", ".js", ".cjs", ".mjs", ".ts", ".rb", ".pl", ".php", ".lua"}
)
"""Suffixes of scripts that an interpreter runs, whether or not they are executable themselves."""
STARTUP_NAMES = frozenset(
    {
        *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".kshrc"),
        *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout"),
        *(".gitconfig", ".xprofile", ".xinitrc", ".xsessionrc", ".inputrc", ".vimrc", ".tmux.conf"),
    }
)
"""Names of files at the top of a home directory that shells and other programs execute or obey at startup."""
AUTOSTART_DIRECTORIES = (".config/fish", ".config/git", ".config/autostart", ".config/systemd", ".config/environment.d")
"""Directories in a home directory whose files are executed or obeyed automatically."""
_WORD_SEPARATORS = re.compile(rf"""[\s;&|<>()`"'$={{}}{os.pathsep}]+""")
"""Shell characters that end a word that may be the path of a program."""


def find_startup_files(
    files: Iterable[Path], commands: Iterable[str], environment: Mapping[str, str]
) -> tuple[Path, ...]:
    """Return the absolute paths of startup files, both as named and resolved.

    Startup files are `files` and the files named by words of shell `commands`: programs on PATH, and paths, resolved
    against the home; also the directories of named scripts, which load what lies beside them.
    """
    named = [path for command in commands for word in _words(command) for path in _files_named_by(word, environment)]
    found: dict[Path, None] = {}
    for file in (*files, *named, *(directory for path in named for directory in _directories_of_script(path))):
        with suppress(OSError, ValueError):  # a name that is too long or contains NUL
            found |= dict.fromkeys((Path(os.path.abspath(file)), Path(real_path(file))))  # noqa: PTH100 (`..`)
    return tuple(found)[:MAX_PATHS]


def protectable_files(files: Iterable[Path], roots: Iterable[Path]) -> tuple[Path, ...]:
    """Return the startup files except directories that contain a root, in which nothing could be written any more."""
    tops = tuple(roots)
    return tuple(file for file in files if not any(root.is_relative_to(file) for root in tops))


def files_at(path: Path) -> Iterator[Path]:
    """Yield a path or, if it is a directory, the files below it, at most `MAX_FILES`."""
    if not path.is_dir():
        yield path
        return
    below = (Path(directory, name) for directory, _, names in walk_tree(path) for name in names)
    yield from islice(below, MAX_FILES)


def is_hard_link_of(path: Path, obeyed: Iterable[Path]) -> bool:
    """Return whether a path is a hard link of one of these files."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return False
    return status.st_nlink > 1 and any(_is_same(file, status) for one in obeyed for file in files_at(one))


def _is_same(path: Path, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), status)
    except OSError:
        return False


def _words(command: str) -> Iterator[str]:
    return filter(None, _WORD_SEPARATORS.split(command))


def _files_named_by(word: str, environment: Mapping[str, str]) -> Iterator[Path]:
    if "/" not in word:
        if found := find_program(word, environment):
            yield Path(found)
        return
    with suppress(OSError, ValueError, RuntimeError):
        path = Path.home() / Path(word).expanduser()
        if not path.is_dir():
            yield path


def _directories_of_script(path: Path) -> Iterator[Path]:
    """Yield the directories from which a script loads others: its own, and that of the file it is a symlink to.

    The home, a directory above it and the top of a repository are too much to protect.
    """
    with suppress(OSError, ValueError):
        if path.suffix not in SCRIPT_SUFFIXES and not os.access(path, os.X_OK):
            return
        home = Path(real_path(Path.home()))
        for directory in {path.absolute().parent, Path(real_path(path)).parent}:
            if not home.is_relative_to(real_path(directory)) and not os.path.lexists(directory / ".git"):
                yield directory


def find_linked_startup_files(home: Path) -> list[Path]:
    """Return the real paths of startup files and directories that lie elsewhere, as in a repository of dotfiles."""
    return [Path(real_path(path)) for path in find_startup_symlinks(home)]


def find_startup_symlinks(home: Path) -> list[Path]:
    """Return the paths of startup files and directories that are symlinks, or lie in one."""
    home = Path(real_path(home))
    directories = [home / name for name in AUTOSTART_DIRECTORIES]
    entries = islice((path for directory in directories for path in _walk_entries(directory)), MAX_ENTRIES)
    links = (path for path in entries if os.path.islink(path))  # noqa: PTH114 (never raises)
    paths = (*(home / name for name in sorted(STARTUP_NAMES)), *directories, *links)
    return [path for path in paths if real_path(path) != str(path)]


def _walk_entries(directory: Path) -> Iterator[Path]:
    for above, _, names in walk_tree(directory):
        yield from (Path(above, name) for name in names)
