"""The directory of a session's own, with the home and the /tmp of its commands: made, kept within bounds, removed."""

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from yarrow.policy.directory_trees import remove_tree

DIRECTORIES = ("tmp", "home")
CACHES = "caches"
"""Directory with the session's own caches of package managers."""
MAX_BYTES = 4_294_967_296
"""The most that a session's home and /tmp hold between two commands, 4 GiB on the disk; of more, both are emptied."""
MEASURE_SECONDS = 60.0
"""How long nobody looks again how much it is, ..."""
MEASURE_SHARE = 100
"""... and how many times as long as the last look took."""

_next_measure: dict[Path, float] = {}
_users: dict[Path, int] = {}
_lock = threading.RLock()
"""It may be taken again in the same thread, for what is collected as garbage leaves too."""


def create(session_dir: Path) -> None:
    """Make the directories that are missing. Raises OSError."""
    for name in DIRECTORIES:
        (session_dir / name).mkdir(mode=0o700, parents=True, exist_ok=True)


def acquire(session_dir: Path) -> bool:
    """Make the directories for one more command; return whether what they held was too much, and is gone.

    They are not emptied while another command runs in them. Each `acquire` needs a `release`. Raises OSError.
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
    """Say that a command is over."""
    with _lock:
        _users[session_dir] = _users.get(session_dir, 1) - 1
        if not _users[session_dir]:
            del _users[session_dir]


def remove(session_dir: Path) -> None:
    """Remove a session's directory; what cannot be removed goes with the service."""
    _next_measure.pop(session_dir, None)
    remove_tree(session_dir)


def _disk_usage(directory: Path) -> int:
    """Return the bytes that a directory takes on the disk, at least when some of it cannot be looked at."""
    used, waiting = 0, [str(directory)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    used += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return used
