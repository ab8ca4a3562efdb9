"""Files in a home directory that shells and other programs execute or obey at startup."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from yarrow.platform.real_path import real_path
from yarrow.policy.directory_trees import walk_tree

STARTUP_NAMES = frozenset(
    {
        *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".kshrc"),
        *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout"),
        *(".gitconfig", ".xprofile", ".xinitrc", ".xsessionrc", ".inputrc", ".vimrc", ".tmux.conf"),
    }
)
"""Names of such files at the top of a home directory."""
AUTOSTART_DIRECTORIES = (".config/fish", ".config/git", ".config/autostart", ".config/systemd", ".config/environment.d")
"""Directories in a home directory whose files are executed or obeyed automatically."""
MAX_ENTRIES = 1_000
"""Maximum entries of these directories among which symlinks are found."""


def find_linked_startup_files(home: Path) -> list[Path]:
    """Return the real paths of startup files and directories that lie elsewhere, as in a repository of dotfiles."""
    home = Path(real_path(home))
    directories = [home / name for name in AUTOSTART_DIRECTORIES]
    entries = islice((path for directory in directories for path in _walk_entries(directory)), MAX_ENTRIES)
    links = (path for path in entries if os.path.islink(path))  # noqa: PTH114 (never raises)
    paths = (*(home / name for name in sorted(STARTUP_NAMES)), *directories, *links)
    return [real for path in paths if (real := Path(real_path(path))) != path]


def _walk_entries(directory: Path) -> Iterator[Path]:
    for above, _, names in walk_tree(directory):
        yield from (Path(above, name) for name in names)
