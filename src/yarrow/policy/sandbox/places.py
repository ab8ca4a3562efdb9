"""Keys below a home, and what decides which programs of a person are shown."""

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from yarrow.policy.sandbox.hidden import hidden_places, real
from yarrow.policy.sandbox.programs import Surroundings
from yarrow.policy.sandbox.sight import State, is_settled
from yarrow.policy.secret_places import SECRET_PLACES

SERVICE_NAMES = (".yarrow",)
"""The service's own directory below a home: configuration, sessions, socket and token."""


def surroundings(home: Path, writable: Sequence[Path], readable: Sequence[Path]) -> Surroundings:
    """Return what decides which programs of a person need to be shown."""
    return Surroundings(
        home=str(home),
        hidden=hidden_places(home),
        homes=(real("/home"),),
        writable=tuple(map(str, writable)),
        readable=tuple(map(str, readable)),
        closed=tuple(map(str, home_secrets(home))),
    )


def home_secrets(home: Path) -> list[Path]:
    """Return the places of keys below a home that exist, and the service's own directory.

    They are looked for again only when a directory above one of them changed.
    """
    known = _known.get(home)
    if known is None or any(_followed(path) != state for path, state in known.states.items()):
        start = time.time_ns()
        known = _looked(str(home))
        _known.clear()
        if is_settled(known.states.values(), start):
            _known[home] = known
    return list(known.places)


class _Look(Struct, frozen=True):
    places: tuple[Path, ...]
    states: dict[str, State]
    """Directories above the places, and symlinks that lead nowhere, with their state."""


_known: dict[Path, _Look] = {}
"""The look at the home that was asked for last."""


def _looked(home: str) -> _Look:
    states: dict[str, State] = {home: _followed(home)}
    missing: set[str] = set()
    places: list[Path] = []
    for name in sorted((*SECRET_PLACES, *SERVICE_NAMES)):
        above = home
        for part in name.split("/")[:-1]:
            above = f"{above}/{part}"
            if above in missing:
                break
            if above not in states:
                state = _followed(above)
                if state is None and not os.path.islink(above):  # noqa: PTH114 (texts throughout)
                    missing.add(above)
                    break
                states[above] = state
        else:
            if os.path.lexists(f"{home}/{name}"):
                places.append(Path(home, name))
    return _Look(tuple(places), states)


def _followed(path: str) -> State:
    """Return the state of the directory that a path leads to."""
    try:
        status = os.stat(path)  # noqa: PTH116 (for each call)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


def linked_secrets(places: Iterable[Path]) -> list[Path]:
    """Return what the places that are symlinks lead to, as when settings are kept in a repository."""
    return [path.resolve() for path in places if path.is_symlink()]
