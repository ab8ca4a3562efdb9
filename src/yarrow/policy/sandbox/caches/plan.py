"""Building blocks of the cache plans of package managers."""

import os
import re
from collections.abc import Mapping

from msgspec import Struct

from yarrow.platform.real_path import real_path

SANDBOX_DIRECTORY = "/run/yarrow-caches"
"""Directory inside under which the user's caches appear; hidden directories are empty, so the name is free."""
CACHE_SUBDIRECTORIES = {"go": "pkg", ".go": "pkg", "cargo": "", ".cargo": ""}
"""Program directories that package managers also write to, each with the subdirectory that they need for it.

A directory is shown as a whole, which is read-only, only if that subdirectory exists; if it is empty, never.
"""


class CacheLinks(Struct, frozen=True):
    """Symlinks in a session directory to the contents of a user directory."""

    source: str
    """The user's directory."""
    sandbox_path: str
    """Path at which commands see it."""
    subpath: str = ""
    """Path of the symlinks in the session directory; empty for the directory itself."""
    directory_pattern: str = ""
    """Pattern of relative paths of directories that the session can add to, with symlinks in them."""
    repository_pattern: str = ""
    """Pattern of relative paths of bare repositories that the session can add to."""
    copy_pattern: str = ""
    """Pattern of relative paths of files that the session can write to."""
    skip_pattern: str = ""
    """Pattern of relative paths without a symlink."""

    def is_extensible(self, path: str) -> bool:
        """Return whether a directory is the session's own, with symlinks in it."""
        return re.fullmatch(self.directory_pattern, path) is not None

    def is_repository(self, path: str) -> bool:
        """Return whether a directory is a bare repository that borrows the user's objects."""
        return re.fullmatch(self.repository_pattern, path) is not None

    def is_copied(self, path: str) -> bool:
        """Return whether a file is the session's own copy."""
        return re.fullmatch(self.copy_pattern, path) is not None

    def is_skipped(self, path: str) -> bool:
        """Return whether a path is omitted."""
        return re.fullmatch(self.skip_pattern, path) is not None


class SessionCacheDirectory(Struct, frozen=True):
    """A session directory that replaces a user's cache."""

    name: str
    target: str
    """Path inside."""
    links: tuple[CacheLinks, ...] = ()


class CachePlan(Struct, frozen=True):
    """Use of the caches of one or more package managers by commands."""

    read_only: tuple[tuple[str, str], ...] = ()
    """User directories shown read-only: the real path, and the path inside."""
    session_caches: tuple[SessionCacheDirectory, ...] = ()
    environment: dict[str, str] = {}
    latest_environment: dict[str, str] = {}
    """Variables that override `environment` in commands asking for latest versions: a cache knows only those it saw."""
    unset: frozenset[str] = frozenset()
    """Variables that name a cache that commands cannot write to."""

    def merge(self, other: "CachePlan") -> "CachePlan":
        """Return the combination of both plans."""
        return CachePlan(
            (*self.read_only, *other.read_only),
            (*self.session_caches, *other.session_caches),
            self.environment | other.environment,
            self.latest_environment | other.latest_environment,
            self.unset | other.unset,
        )


EMPTY_PLAN = CachePlan()


class CacheContext(Struct, frozen=True):
    """Paths and variables that determine where caches are; all paths are real."""

    home: str
    sandbox_home: str
    """Home of commands."""
    writable: tuple[str, ...]
    secret_paths: tuple[str, ...]
    """Paths of secrets."""
    environment: Mapping[str, str]
    account: str = ""
    """Home of the commands' user according to the user database; empty if unknown."""

    def path_variable(self, name: str) -> str:
        """Return the absolute path in a variable; empty for any other value."""
        value = self.environment.get(name, "")
        return os.path.normpath(value) if value.startswith("/") else ""

    def user_directory(self, path: str) -> str:
        """Return the real path of a user directory that may be shown; empty if it may not."""
        real = real_path(path)
        is_usable = os.path.isdir(real) and not _lies_in(real, (*self.writable, *self.secret_paths))  # noqa: PTH112
        return real if is_usable and os.access(real, os.R_OK | os.X_OK) else ""

    def home_path(self, path: str) -> str:
        """Return the path inside of a path below the user's home; empty for any other path."""
        return f"{self.sandbox_home}{path[len(self.home) :]}" if path.startswith(f"{self.home}/") else ""

    def in_workspace(self, path: str) -> bool:
        """Return whether a path lies in the workspace, so that commands can write to the real one."""
        return _lies_in(real_path(path), self.writable)

    def can_write(self, path: str) -> bool:
        """Return whether commands can write to a path under the same name."""
        return self.in_workspace(path) or _lies_in(path, (self.home, self.sandbox_home, "/tmp"))  # noqa: S108


def _lies_in(path: str, places: tuple[str, ...]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)
