"""Directories of a session's files: home, the user's directory, the project's root and its subdirectories."""

import os
import stat
from pathlib import Path

from msgspec import Struct

from yarrow.policy.sandbox.secret_symlinks import SecretSymlinks
from yarrow.policy.secrets import ENV_FILES, SecretFiles
from yarrow.policy.workspace import follow_links

REPLACEMENT_CHARACTER = "\ufffd"


class SessionDirectories(Struct, frozen=True):
    """The directories of a session, as absolute real paths."""

    home: Path
    user_directory: Path
    """Directory of the user's own files, such as `~/.yarrow`."""
    cwd: Path
    root: Path
    """The project's root, at or above `cwd`."""
    secrets: SecretFiles = ENV_FILES
    """Files that are not read."""

    @classmethod
    def make(
        cls, *, home: Path, user_directory: Path, cwd: Path, secrets: SecretFiles = ENV_FILES
    ) -> "SessionDirectories":
        """Resolve symlinks and find the project root; runs no program, and paths that do not exist are kept."""
        home, user_directory, cwd = (Path(os.path.realpath(path)) for path in (home, user_directory, cwd))
        return cls(
            home=home, user_directory=user_directory, cwd=cwd, root=_find_project_root(cwd, home), secrets=secrets
        )

    def list_project_directories(self) -> tuple[Path, ...]:
        """Return the directories from the project's root down to `cwd`."""
        return list_directories_down(self.root, self.cwd)

    def is_secret(self, path: Path, real: Path) -> bool:
        """Return True if a file holds secrets by its name or that of a symlink to it, as for file tools."""
        if any(self.secrets.has(one.name) for one in (real, *follow_links(path))):
            return True
        return SecretSymlinks(
            self.list_project_directories(), self.secrets, writable=(self.root, self.user_directory)
        ).has(str(real))

    def format_path(self, path: Path) -> str:
        """Return a path for display, with `~/` for home, using only printable characters."""
        return format_path(f"~/{path.relative_to(self.home)}" if path.is_relative_to(self.home) else path)


def list_directories_down(top: Path, bottom: Path) -> tuple[Path, ...]:
    """Return the directories from `top` down to `bottom`, which must be at or below it."""
    between = [bottom, *bottom.parents]
    return tuple(reversed(between[: between.index(top) + 1]))


def format_path(path: Path | str) -> str:
    """Return a path with a placeholder for every character that is unprintable, not encodable or a line break."""
    text = os.fsencode(path).decode("utf-8", "replace")
    return "".join(character if character.isprintable() else REPLACEMENT_CHARACTER for character in text)


def _find_project_root(cwd: Path, home: Path) -> Path:
    """Return the nearest directory from `cwd` upward, below home, that is a repository of the owner of `cwd`.

    A repository of another user, such as one planted in `/tmp`, is skipped. Returns `cwd` if there is none.
    """
    try:
        owner = cwd.stat().st_uid
    except OSError:
        return cwd
    for directory in (cwd, *cwd.parents):
        if home.is_relative_to(directory):
            break
        if _is_repository(directory, owner):
            return directory
    return cwd


def _is_repository(directory: Path, owner: int) -> bool:
    try:
        mode = (directory / ".git").stat().st_mode
        return (stat.S_ISDIR(mode) or stat.S_ISREG(mode)) and directory.stat().st_uid == owner
    except OSError:
        return False
