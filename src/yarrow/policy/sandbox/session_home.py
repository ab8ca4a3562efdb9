"""Directory of a session with the home, /tmp and /dev/shm of its commands: creation, size limit, removal."""

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from yarrow.policy.directory_trees import remove_tree
from yarrow.policy.sandbox.hidden_directories import sandbox_home
from yarrow.policy.sandbox.sandbox_spec import SandboxSpec

DIRECTORIES = ("tmp", "shm", "home")
CACHES = "caches"
"""Name of the directory with the session's own package manager caches."""
MAX_BYTES = 4_294_967_296
"""Maximum bytes on disk of a session's directories between two commands (4 GiB); beyond that, they are emptied."""
MEASURE_SECONDS = 60.0
"""Minimum seconds between two measurements of the size."""
MEASURE_SHARE = 100
"""Minimum time between two measurements, as a multiple of the duration of the last one."""

_next_measure: dict[Path, float] = {}
_users: dict[Path, int] = {}
_lock = threading.RLock()
"""Reentrant, because garbage collection may call `release` in the same thread."""


def session_places(spec: SandboxSpec) -> tuple[tuple[Path, Path], ...]:
    """Return the session's own directories, each with the path at which commands see it."""
    directory = spec.session_dir
    return (
        (directory / "home", sandbox_home(spec.home)),
        (directory / "tmp", Path("/tmp")),  # noqa: S108 (the session's own)
        (directory / "shm", Path("/dev/shm")),  # noqa: S108 (the session's own)
    )


def create(session_dir: Path) -> None:
    """Create the directories that are missing. Raises OSError."""
    for name in DIRECTORIES:
        (session_dir / name).mkdir(mode=0o700, parents=True, exist_ok=True)


def acquire(session_dir: Path) -> bool:
    """Create the directories for another command; return whether they exceeded the limit and were emptied.

    They are not emptied while another command uses them. Each `acquire` needs a `release`. Raises OSError.
    """
    create(session_dir)
    start = time.monotonic()
    with _lock:
        is_alone = session_dir not in _users
        _users[session_dir] = _users.get(session_dir, 0) + 1
        if not is_alone or start < _next_measure.setdefault(session_dir, start + MEASURE_SECONDS):
            return False
    is_much = _disk_usage(session_dir) > MAX_BYTES
    if is_much:
        for name in DIRECTORIES:
            remove_tree(session_dir / name)
            (session_dir / name).mkdir(mode=0o700, exist_ok=True)
        remove_tree(session_dir / CACHES)
    took = time.monotonic() - start
    _next_measure[session_dir] = time.monotonic() + max(MEASURE_SECONDS, took * MEASURE_SHARE)
    return is_much


def release(session_dir: Path) -> None:
    """Register the end of a command."""
    with _lock:
        _users[session_dir] = _users.get(session_dir, 1) - 1
        if not _users[session_dir]:
            del _users[session_dir]


def remove(session_dir: Path) -> None:
    """Remove a session's directory; what cannot be removed is removed with the service's own directory."""
    _next_measure.pop(session_dir, None)
    remove_tree(session_dir)


def _disk_usage(directory: Path) -> int:
    """Return the disk usage of a directory in bytes; inaccessible parts are not counted."""
    used, waiting = 0, [str(directory)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    used += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return used
