"""Paths below the home directory in which programs store credentials."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from yarrow.platform import system
from yarrow.platform.real_path import real_path
from yarrow.policy.secret_file_patterns import PACKAGE_DIRECTORIES, SECRET_PATHS, is_secret_file, is_secret_name

CACHE_SECONDS = 1.0
"""Seconds for which resolved symlinks of credential paths are cached, because one call asks several times."""
MAX_CACHED = 16
"""Maximum cached results; if exceeded, the cache is cleared."""
SETTINGS_FILES = {".gitconfig": True, ".config/git/config": True, ".cargo/config.toml": False, ".cargo/config": False}
"""Settings files below a home that are secret if they contain tokens, and whether they are git's."""


class CredentialPaths(Struct, frozen=True):
    """Files and directories that contain credentials; paths are normalized for comparison, with a trailing slash."""

    home: str
    paths: tuple[str, ...]
    readable: tuple[str, ...] = ()
    """Credential paths named by `workspace.read`, which are shown."""
    writable: tuple[str, ...] = ()
    """Roots of the workspace, in which a name alone does not make a file secret."""

    @classmethod
    def for_home(cls, home: Path, readable: Sequence[Path] = (), writable: Sequence[Path] = ()) -> "CredentialPaths":
        """Return the credential paths of a home, with symlinks resolved, from a cache of at most `CACHE_SECONDS`."""
        now = time.monotonic()
        key = (home, tuple(readable), tuple(writable))
        at, known = _cache.get(key, (0.0, None))
        if known is None or now - at > CACHE_SECONDS:
            known = cls._find(*key)
            if len(_cache) >= MAX_CACHED:
                _cache.clear()
            _cache[key] = (now, known)
        return known

    @classmethod
    def _find(cls, home: Path, readable: tuple[Path, ...], writable: tuple[Path, ...]) -> "CredentialPaths":
        real = real_path(home).rstrip("/")
        named = [f"{real}/{name}" for name in SECRET_PATHS]
        linked = [real_path(name) for name in named if os.path.islink(name)]  # noqa: PTH114 (runs for each call)
        places = (*named, *linked)
        everything = cls(
            _normalize(real), tuple(map(_normalize, places)), (), tuple(_normalize(str(root)) for root in writable)
        )
        return cls(
            everything.home,
            everything.paths,
            tuple(_normalize(str(root)) for root in readable if everything.has(str(root))),
            everything.writable,
        )

    def has(self, real: str) -> bool:
        """Return whether a real path is a credential path or lies in one."""
        path = _normalize(real)
        if self.is_readable(real):
            return False
        if path.startswith(self.paths):
            return True
        if not path.startswith(self.home) or path[len(self.home) : len(self.home) + 1] != ".":
            return False
        below = path[len(self.home) : -1]
        if below in SETTINGS_FILES:
            from yarrow.policy.sandbox.redacted_settings import holds_credentials

            return holds_credentials(Path(real), is_git=SETTINGS_FILES[below])
        if self.writable and path.startswith(tuple(root for root in self.writable if not self.home.startswith(root))):
            return False
        return _has_secret_name(below, real)

    def is_readable(self, real: str) -> bool:
        """Return whether a real path is, or lies in, a credential path named by `workspace.read`."""
        return bool(self.readable) and _normalize(real).startswith(self.readable)


def _has_secret_name(below: str, real: str) -> bool:
    """Return whether a path below a home contains credentials according to its name or a parent's name."""
    *above, name = below.split("/")
    if not PACKAGE_DIRECTORIES.isdisjoint(above):
        return False
    return any(map(is_secret_name, above)) or is_secret_file(os.path.dirname(real), name)  # noqa: PTH120 (a string)


def _normalize(path: str) -> str:
    return f"{system.normcase(path)}/"


_cache: dict[tuple[Path, tuple[Path, ...], tuple[Path, ...]], tuple[float, CredentialPaths]] = {}
