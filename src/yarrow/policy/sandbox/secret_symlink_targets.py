"""Targets of symlinks with names of secret files, which sandboxes cover and file tools refuse."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from yarrow.policy.secret_names import ENV_FILE, SecretFiles


def is_recorded(path: Path) -> bool:
    """Return whether git has recorded the content of a file."""
    from yarrow.policy.sandbox import git_internal_files  # most reads involve no secret file

    return git_internal_files.is_recorded(path)


def resolve_secret_file(path: Path, roots: Sequence[Path], secrets: SecretFiles) -> Path | None:
    """Return the file to cover for a secret file: itself or, for a symlink, its target.

    Return None for a file with the content that git recorded. Also return None for a symlink that is dangling, or that
    leads to a non-file, to an example file, or out of the workspace to a world-readable file, such as a program.
    """
    if not path.is_symlink():
        return None if is_recorded(path) else path
    try:
        real = path.resolve(strict=True)
        mode = real.stat().st_mode
    except (OSError, RuntimeError):  # a loop raises one or the other
        return None
    is_open = mode & stat.S_IROTH and not any(real.is_relative_to(root) for root in roots)
    is_example = real.name.startswith(ENV_FILE) and not secrets.has(real.name)
    return real if stat.S_ISREG(mode) and not is_open and not is_example and not is_recorded(real) else None


class SecretSymlinks:
    """Targets of symlinks with secret names, in their own directory or in `places`; each directory is read once."""

    def __init__(self, places: Sequence[Path], secrets: SecretFiles, *, writable: Sequence[Path]) -> None:
        self._secrets = secrets
        self._writable = writable
        self._everywhere = frozenset(file for place in places for file in self._files(str(place)))
        self._by_directory: dict[str, frozenset[str]] = {}

    def has(self, real: str) -> bool:
        """Return whether such a symlink leads to this real path."""
        directory = os.path.dirname(real)  # noqa: PTH120 (runs for each file of a tree)
        known = self._by_directory.get(directory)
        if known is None:
            known = self._by_directory[directory] = self._everywhere.union(self._files(directory))
        return real in known

    def _files(self, directory: str) -> list[str]:
        from yarrow.policy.sandbox.directory_listing import list_directory  # only a file from outside needs it

        try:
            names = list_directory(directory, self._secrets).notable
        except (OSError, ValueError):  # an unreadable directory or invalid name contains no such symlink
            return []
        links = (Path(directory, name) for name in names if self._secrets.has(name))
        found = (resolve_secret_file(link, self._writable, self._secrets) for link in links if link.is_symlink())
        return [str(file) for file in found if file is not None]
