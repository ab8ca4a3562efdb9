"""Credentials below a home, and the scope of the search for the user's visible programs."""

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from yarrow.policy.sandbox.program_search import ProgramScope
from yarrow.policy.sandbox.sandbox_spec import cached_realpath, hidden_directories
from yarrow.policy.sandbox.visible_programs import StatState, is_settled
from yarrow.policy.secret_file_patterns import SECRET_PATHS

SERVICE_DIRECTORIES = (".yarrow",)
"""The service's own directory below a home: configuration, sessions, socket and token."""


def program_scope(home: Path, writable: Sequence[Path], readable: Sequence[Path]) -> ProgramScope:
    """Return the scope of the search for the user's programs that need to be shown."""
    return ProgramScope(
        home=str(home),
        hidden=hidden_directories(home),
        homes=(cached_realpath("/home"),),
        writable=tuple(map(str, writable)),
        readable=tuple(map(str, readable)),
        secret_paths=tuple(map(str, find_home_secrets(home))),
    )


def find_home_secrets(home: Path) -> list[Path]:
    """Return the existing credential paths below a home, and the service's own directory.

    They are searched again only when one of their parent directories changed.
    """
    known = _cache.get(home)
    if known is None or any(_stat_state(path) != state for path, state in known.states.items()):
        start = time.time_ns()
        known = _scan_home(str(home))
        _cache.clear()
        if is_settled(known.states.values(), start):
            _cache[home] = known
    return list(known.places)


class _HomeScan(Struct, frozen=True):
    places: tuple[Path, ...]
    states: dict[str, StatState]
    """State of each parent directory of the places and of each dangling symlink."""


_cache: dict[Path, _HomeScan] = {}
"""Cache for the most recently requested home directory."""


def _scan_home(home: str) -> _HomeScan:
    states: dict[str, StatState] = {home: _stat_state(home)}
    missing: set[str] = set()
    places: list[Path] = []
    for name in sorted((*SECRET_PATHS, *SERVICE_DIRECTORIES)):
        above = home
        for part in name.split("/")[:-1]:
            above = f"{above}/{part}"
            if above in missing:
                break
            if above not in states:
                state = _stat_state(above)
                if state is None and not os.path.islink(above):  # noqa: PTH114 (strings throughout)
                    missing.add(above)
                    break
                states[above] = state
        else:
            if os.path.lexists(f"{home}/{name}"):
                places.append(Path(home, name))
    return _HomeScan(tuple(places), states)


def _stat_state(path: str) -> StatState:
    """Return the state of the directory that a path leads to."""
    try:
        status = os.stat(path)  # noqa: PTH116 (runs for each call)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


def resolve_symlinks(places: Iterable[Path]) -> list[Path]:
    """Return the targets of the places that are symlinks, as when settings are kept in a repository."""
    return [path.resolve() for path in places if path.is_symlink()]
