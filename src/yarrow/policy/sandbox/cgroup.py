"""A limit on processes that holds for root too: a control group of the kernel, where we may make one."""

import atexit
import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

MAX_PROCESSES = 2_048
"""Of all commands of one service together."""
PREFIX = "yarrow-"
_ROOT = Path("/sys/fs/cgroup")


@lru_cache(maxsize=1)
def cgroup_procs() -> Path | None:
    """Return the file that takes the number of a process into the group; None where none can be made."""
    for parent in _candidate_parents():
        _remove_stale(parent)
        made = parent / f"{PREFIX}{os.getpid()}"
        try:
            made.mkdir(exist_ok=True)  # one of the same number that was killed could not remove it
        except OSError:
            continue
        try:
            (made / "pids.max").write_text(str(MAX_PROCESSES))
        except OSError:
            with suppress(OSError):
                made.rmdir()
            continue
        atexit.register(_remove, made, os.getpid())
        return made / "cgroup.procs"
    return None


def cgroup_tasks() -> Path | None:
    """Return the file that takes a single thread into the group; None where threads cannot be moved alone.

    What a thread of the group starts is in the group from the beginning. To move each process there costs some 10 ms
    instead, in which the kernel waits for all processors.
    """
    entry = cgroup_procs()
    file = None if entry is None else entry.with_name("tasks")
    return file if file is not None and file.exists() else None


def _candidate_parents() -> list[Path]:
    """Return where a group could be made, in the older and the newer kind of control groups.

    That is below our own, or beside it: in the newer kind one that holds processes mostly has no groups below.
    """
    found: list[Path] = []
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "pids" not in controllers.split(","):
                continue
            top = _ROOT / "pids" if controllers else _ROOT
            own = top / path.lstrip("/")
            found += [own] if own == top else [own, own.parent]
    return found


def _remove_stale(parent: Path) -> None:
    """Remove the groups of processes that were killed; one that still holds something stays."""
    for left in parent.glob(f"{PREFIX}*"):
        if not Path("/proc", left.name.removeprefix(PREFIX)).exists():
            with suppress(OSError):
                left.rmdir()


def _remove(made: Path, owner: int) -> None:
    # A child that was forked inherits the registration, and not the group.
    if os.getpid() == owner:
        with suppress(OSError):
            made.rmdir()
