"""Start of a sandboxed command in its own process group and cgroup."""

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
    """Means by which commands are started."""

    thread: Executor | None
    """Thread that starts commands; None if no thread needs to be bound."""
    has_entered: bool
    """True if the thread is in the cgroup."""
    is_scoped: bool
    """True if abstract sockets of other processes are out of reach."""


@lru_cache(maxsize=4)
def get_starter(tasks: Path | None, launcher: str) -> CommandStarter:
    """Return the starter for a cgroup, given the file that moves threads into it; None for no cgroup.

    A thread lives as long as the process, because the kernel kills a command when the thread that started it ends.
    """
    bound: list[bool] = []
    thread = ThreadPoolExecutor(1, "yarrow-start", initializer=_bind, initargs=(tasks, launcher, bound))
    try:
        thread.submit(int).result()
    except BrokenExecutor:  # it could not enter the cgroup
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
    """Return whether a program runs with its owner's or group's rights, which Landlock prevents in a bound thread."""
    try:
        return bool(os.stat(program).st_mode & (stat.S_ISUID | stat.S_ISGID))  # noqa: PTH116 (only the mode)
    except OSError:
        return True


MAX_PROCESSES = 2_048
"""Maximum processes of all commands of one service together."""
PREFIX = "yarrow-"
_ROOT = Path("/sys/fs/cgroup")


@lru_cache(maxsize=1)
def cgroup_procs() -> Path | None:
    """Return the file that moves processes into a new cgroup; None if none can be created."""
    for parent in _candidate_parents():
        _remove_stale(parent)
        made = parent / f"{PREFIX}{os.getpid()}"
        try:
            made.mkdir(exist_ok=True)  # one left by a killed process with the same number may exist
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
    """Return the file that moves a single thread into the cgroup; None if threads cannot be moved individually.

    A thread's children start in its cgroup. Moving each process there instead costs some 10 ms, during which the kernel
    waits for all processors.
    """
    entry = cgroup_procs()
    file = None if entry is None else entry.with_name("tasks")
    return file if file is not None and file.exists() else None


def _candidate_parents() -> list[Path]:
    """Return where a cgroup could be created, in cgroups v1 and v2.

    This is below our own cgroup or next to it: in v2, a cgroup that contains processes usually has no children.
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
    """Remove the cgroups of killed processes, except those that are not empty."""
    for left in parent.glob(f"{PREFIX}*"):
        if not Path("/proc", left.name.removeprefix(PREFIX)).exists():
            with suppress(OSError):
                left.rmdir()


def _remove(made: Path, owner: int) -> None:
    # A forked child inherits the registration but not the cgroup.
    if os.getpid() == owner:
        with suppress(OSError):
            made.rmdir()
