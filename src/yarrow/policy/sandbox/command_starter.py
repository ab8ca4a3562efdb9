"""Start of a sandboxed command in a process group and a cgroup of its own."""

import atexit
import os
import stat
import threading
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from yarrow.platform import system


class CommandStarter(Struct, frozen=True):
    """Where commands are started."""

    thread: Executor | None
    """None where no thread needs to be bound."""
    has_entered: bool
    """Whether the thread is in the control group."""
    is_scoped: bool
    """Whether abstract sockets of others are out of reach."""


@lru_cache(maxsize=4)
def get_starter(tasks: Path | None, launcher: str) -> CommandStarter:
    """Return the thread for a file that takes threads into a control group, None for no group.

    A thread lives as long as the process, since the kernel ends a command with the thread that started it.
    """
    bound: list[bool] = []
    thread = ThreadPoolExecutor(1, "yarrow-start", initializer=_bind, initargs=(tasks, launcher, bound))
    try:
        thread.submit(int).result()
    except BrokenExecutor:  # it could not enter the group
        return (
            get_starter(None, launcher)
            if tasks is not None
            else CommandStarter(None, has_entered=False, is_scoped=False)
        )
    if tasks is None and not bound[0]:
        thread.shutdown(wait=False)
        return CommandStarter(None, has_entered=False, is_scoped=False)
    return CommandStarter(thread, has_entered=tasks is not None, is_scoped=bound[0])


def _bind(tasks: Path | None, launcher: str, bound: list[bool]) -> None:
    if tasks is not None:
        tasks.write_text(str(threading.get_native_id()))
    bound.append(not _gains_rights(launcher) and system.scope_abstract_sockets())


def _gains_rights(program: str) -> bool:
    """Whether a program runs with the rights of its owner, which a thread bound by Landlock cannot give it."""
    try:
        return bool(os.stat(program).st_mode & (stat.S_ISUID | stat.S_ISGID))  # noqa: PTH116 (its mode alone)
    except OSError:
        return True


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
