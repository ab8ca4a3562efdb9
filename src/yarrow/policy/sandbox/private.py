"""The directory of a session's own, with the home and the /tmp of its commands: made, kept within bounds, removed."""

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from yarrow.policy.sandbox.trees import remove_tree

PARTS = ("tmp", "home")
CACHES = "caches"
"""Directory with the session's own caches of package managers."""
PRIVATE_BYTES = 4_294_967_296
"""The most that a session's home and /tmp hold between two commands, 4 GiB on the disk; of more, both are emptied."""
LOOK_SECONDS = 60.0
"""How long nobody looks again how much it is, ..."""
LOOK_SHARE = 100
"""... and how many times as long as the last look took."""

_next_look: dict[Path, float] = {}
_users: dict[Path, int] = {}
_counting = threading.RLock()
"""It may be taken again in the same thread, for what is collected as garbage leaves too."""


def make(private: Path) -> None:
    """Make the directories that are missing. Raises OSError."""
    for name in PARTS:
        (private / name).mkdir(mode=0o700, parents=True, exist_ok=True)


def enter(private: Path) -> bool:
    """Make the directories for one more command; return whether what they held was too much, and is gone.

    They are not emptied while another command runs in them. Each `enter` needs a `leave`. Raises OSError.
    """
    make(private)
    start = time.monotonic()
    with _counting:
        is_alone = private not in _users
        _users[private] = _users.get(private, 0) + 1
        if not is_alone or start < _next_look.setdefault(private, start + LOOK_SECONDS):
            return False
    is_much = _used(private) > PRIVATE_BYTES
    if is_much:
        for name in PARTS:
            remove_tree(private / name)
            (private / name).mkdir(mode=0o700, exist_ok=True)
        remove_tree(private / CACHES)
    took = time.monotonic() - start
    _next_look[private] = time.monotonic() + max(LOOK_SECONDS, took * LOOK_SHARE)
    return is_much


def leave(private: Path) -> None:
    """Say that a command is over."""
    with _counting:
        _users[private] = _users.get(private, 1) - 1
        if not _users[private]:
            del _users[private]


def remove(private: Path) -> None:
    """Remove a session's directory; what cannot be removed goes with the service."""
    _next_look.pop(private, None)
    remove_tree(private)


def _used(directory: Path) -> int:
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
