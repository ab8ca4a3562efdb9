"""Parts that the plan of each package manager consists of."""

import os
import re
from collections.abc import Mapping

from msgspec import Struct

SANDBOX_DIRECTORY = "/run/yarrow-caches"
"""Directory inside with what the user's caches are seen as; hidden places are empty, so nothing else has the name."""
CACHE_SUBDIRECTORIES = {"go": "pkg", ".go": "pkg", "cargo": "", ".cargo": ""}
"""Directories of programs that package managers also write to, and what in them must exist for that when they are shown
whole, which is read-only; empty where they never are."""


class CacheLinks(Struct, frozen=True):
    """Links in a directory of the session to what a directory of the user holds."""

    source: str
    """The user's directory."""
    sandbox_path: str
    """The path at which commands see it."""
    subpath: str = ""
    """Path of the links in the session's directory; empty for the directory itself."""
    directory_pattern: str = ""
    """Pattern of the relative paths of directories that the session can add to, with links in them."""
    repository_pattern: str = ""
    """Pattern of the relative paths of bare repositories that the session can add to."""
    copy_pattern: str = ""
    """Pattern of the relative paths of files that the session can write to."""
    skip_pattern: str = ""
    """Pattern of the relative paths without a link."""

    def is_extensible(self, path: str) -> bool:
        """Whether a directory is the session's own, with links in it."""
        return re.fullmatch(self.directory_pattern, path) is not None

    def is_repository(self, path: str) -> bool:
        """Whether a directory is a bare repository that borrows the user's objects."""
        return re.fullmatch(self.repository_pattern, path) is not None

    def is_copied(self, path: str) -> bool:
        """Whether a file is the session's own."""
        return re.fullmatch(self.copy_pattern, path) is not None

    def is_skipped(self, path: str) -> bool:
        """Whether nothing is made for a path."""
        return re.fullmatch(self.skip_pattern, path) is not None


class SessionCacheDirectory(Struct, frozen=True):
    """A directory of the session in the place of a user's cache."""

    name: str
    target: str
    """Path inside."""
    links: tuple[CacheLinks, ...] = ()


class CachePlan(Struct, frozen=True):
    """How commands use the caches of one package manager, or of several."""

    read_only: tuple[tuple[str, str], ...] = ()
    """Directories of the user that are shown read-only: the real path, and the path inside."""
    session_caches: tuple[SessionCacheDirectory, ...] = ()
    environment: dict[str, str] = {}
    latest_environment: dict[str, str] = {}
    """Variables, in place of those, of commands that ask for the latest versions: a cache knows the ones it saw."""
    unset: frozenset[str] = frozenset()
    """Variables that name a cache that commands cannot write to."""

    def merge(self, other: "CachePlan") -> "CachePlan":
        """Return the plan of both."""
        return CachePlan(
            (*self.read_only, *other.read_only),
            (*self.session_caches, *other.session_caches),
            self.environment | other.environment,
            self.latest_environment | other.latest_environment,
            self.unset | other.unset,
        )


EMPTY_PLAN = CachePlan()


class CacheContext(Struct, frozen=True):
    """What decides where caches are; all paths are real."""

    home: str
    sandbox_home: str
    """Home of commands."""
    writable: tuple[str, ...]
    secret_paths: tuple[str, ...]
    """Places of secrets."""
    environment: Mapping[str, str]
    account: str = ""
    """Home of the user that commands run as, by the list of users; empty when it is unknown."""

    def path_variable(self, name: str) -> str:
        """Return the absolute path that a variable holds, empty for any other value."""
        value = self.environment.get(name, "")
        return os.path.normpath(value) if value.startswith("/") else ""

    def user_directory(self, path: str) -> str:
        """Return the real path of a directory of the user that may be shown; empty for none."""
        real = os.path.realpath(path)
        is_usable = os.path.isdir(real) and not _lies_in(real, (*self.writable, *self.secret_paths))  # noqa: PTH112
        return real if is_usable and os.access(real, os.R_OK | os.X_OK) else ""

    def home_path(self, path: str) -> str:
        """Return where a path below the user's home is inside; empty for any other."""
        return f"{self.sandbox_home}{path[len(self.home) :]}" if path.startswith(f"{self.home}/") else ""

    def in_workspace(self, path: str) -> bool:
        """Whether commands write to a path outside anyway."""
        return _lies_in(os.path.realpath(path), self.writable)

    def can_write(self, path: str) -> bool:
        """Whether commands can write to a path that they find by the name of it."""
        return self.in_workspace(path) or _lies_in(path, (self.home, self.sandbox_home, "/tmp"))  # noqa: S108


def _lies_in(path: str, places: tuple[str, ...]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)
