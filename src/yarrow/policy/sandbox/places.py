"""Places of a machine that a sandbox hides, and the keys below a home."""

import os
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from yarrow.policy.sandbox.programs import Surroundings
from yarrow.policy.sandbox.sight import SETTLED_NANOSECONDS
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
    """Return the places of keys below a home that exist, and the service's own directory."""
    top = _names_in(str(home))
    names = (name for first in top & _places().keys() for name in _places()[first])
    return sorted(home / name for name in names if "/" not in name or os.access(f"{home}/{name}", os.F_OK))


@lru_cache(maxsize=1)
def _places() -> dict[str, list[str]]:
    """Return the places of keys by the first name of their path."""
    places: dict[str, list[str]] = {}
    for name in (*SECRET_PLACES, *SERVICE_NAMES):
        places.setdefault(name.partition("/")[0], []).append(name)
    return places


_tops: dict[str, tuple[tuple[int, int, int], set[str]]] = {}
"""The home that was listed last, with its device, number and time of the last change."""


def _names_in(home: str) -> set[str]:
    """Return the names in a home, listed again only when one came or went."""
    try:
        status = os.stat(home)  # noqa: PTH116 (for each call)
        state = (status.st_dev, status.st_ino, status.st_ctime_ns)
        known = _tops.get(home)
        if known is not None and known[0] == state:
            return known[1]
        names = set(os.listdir(home))  # noqa: PTH208
    except OSError:
        return set()
    _tops.clear()
    if time.time_ns() - status.st_ctime_ns > SETTLED_NANOSECONDS:
        _tops[home] = (state, names)
    return names


def linked_secrets(places: Iterable[Path]) -> list[Path]:
    """Return what the places that are symlinks lead to, as when settings are kept in a repository."""
    return [path.resolve() for path in places if path.is_symlink()]
