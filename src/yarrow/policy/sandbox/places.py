"""Places of a machine that a sandbox hides, and the keys below a home."""

import os
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from yarrow.policy.sandbox.programs import Surroundings
from yarrow.policy.sandbox.sight import State, is_settled
from yarrow.policy.secret_places import SECRET_PLACES

HIDDEN = ("/home", "/root", "/run", "/mnt", "/media", "/srv", "/var/tmp", "/var/spool", "/var/mail", "/var/backups")  # noqa: S108 (to hide it)
"""Directories that hold other people's things, sockets and keys; empty inside."""
HIDDEN_PRIVATE = ("/etc/ssl/private", "/etc/sudoers.d", "/etc/NetworkManager", "/var/lib/docker", "/var/lib/private")
SECRET_FILES = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers")
"""Files that only root reads, and a service that runs as root could."""
KERNEL = ("/proc/sys", "/proc/sysrq-trigger", "/proc/fs", "/proc/acpi")
"""What sets the kernel, and may be writable to the root of a namespace; bubblewrap itself covers irq and bus."""
PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/etc", "/opt", "/var", "/dev", "/proc", "/sys")
"""Where nothing else can stand: what is run lies there, or is set up there."""
NO_HOME = Path("/tmp/home")  # noqa: S108 (it is the session's own there)
"""Where the home inside is when there is none outside, or one in whose place no other can stand."""
SERVICE_NAMES = (".yarrow",)
"""The service's own directory below a home: configuration, sessions, socket and token."""


def home_inside(home: Path) -> Path:
    """Return where the home of commands stands: in the place of the real one wherever that can be."""
    above = os.path.join(home, "")  # noqa: PTH118 (a text, for this is done for each call)
    holds_programs = any(f"{place}/".startswith(above) for place in PROGRAMS)
    return home if home.is_dir() and not holds_programs else NO_HOME


def surroundings(home: Path, writable: Sequence[Path], readable: Sequence[Path]) -> Surroundings:
    """Return what decides which programs of a person need to be shown."""
    hidden = [real(name) for name in (*HIDDEN, "/tmp")]  # noqa: S108 (the session has its own)
    if home_inside(home) == home:
        hidden.append(str(home))
    return Surroundings(
        home=str(home),
        hidden=tuple(hidden),
        homes=(real("/home"),),
        writable=tuple(map(str, writable)),
        readable=tuple(map(str, readable)),
        closed=tuple(map(str, home_secrets(home))),
    )


@lru_cache(maxsize=64)
def real(name: str) -> str:
    """Return where a directory of the system really is; only root can replace it meanwhile."""
    return os.path.realpath(name)


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
