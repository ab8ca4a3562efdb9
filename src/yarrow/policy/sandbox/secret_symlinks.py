"""Finds the files that links with names of secret files lead to: sandboxes cover them, and file tools refuse them."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from yarrow.policy.sandbox.directory_scan import list_directory
from yarrow.policy.secrets import ENV_FILE, SecretFiles


def is_recorded(path: Path) -> bool:
    """Whether git has recorded what a file holds."""
    from yarrow.policy.sandbox import git_index  # most reads meet no file of secrets

    return git_index.is_recorded(path)


def resolve_secret_file(path: Path, roots: Sequence[Path], secrets: SecretFiles) -> Path | None:
    """Return what is covered for a file of secrets: of a link, the file that it leads to.

    None for a file as git has recorded it, and for a link that leads nowhere, to no file, to an example that is made
    to be read, or out of the workspace to what everybody may read, programs among it.
    """
    if not path.is_symlink():
        return None if is_recorded(path) else path
    try:
        real = path.resolve(strict=True)
        mode = real.stat().st_mode
    except (OSError, RuntimeError):  # a loop is one or the other
        return None
    is_open = mode & stat.S_IROTH and not any(real.is_relative_to(root) for root in roots)
    is_example = real.name.startswith(ENV_FILE) and not secrets.has(real.name)
    return real if stat.S_ISREG(mode) and not is_open and not is_example and not is_recorded(real) else None


class SecretSymlinks:
    """Files that a link in their own directory, or in one of `places`, says are secret; each is looked at once."""

    def __init__(self, places: Sequence[Path], secrets: SecretFiles, *, writable: Sequence[Path]) -> None:
        self._secrets = secrets
        self._writable = writable
        self._everywhere = frozenset(file for place in places for file in self._files(str(place)))
        self._by_directory: dict[str, frozenset[str]] = {}

    def has(self, real: str) -> bool:
        """Whether such a link leads to the file of this real path."""
        directory = os.path.dirname(real)  # noqa: PTH120 (asked of each file of a tree)
        known = self._by_directory.get(directory)
        if known is None:
            known = self._by_directory[directory] = self._everywhere.union(self._files(directory))
        return real in known

    def _files(self, directory: str) -> list[str]:
        try:
            names = list_directory(directory, self._secrets).notable
        except (OSError, ValueError):  # what nobody can list, or what no directory can be called, holds no such link
            return []
        links = (Path(directory, name) for name in names if self._secrets.has(name))
        found = (resolve_secret_file(link, self._writable, self._secrets) for link in links if link.is_symlink())
        return [str(file) for file in found if file is not None]
