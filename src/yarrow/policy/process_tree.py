"""Finds and signals every process of one call: its group, its session, its descendants, and who left them all.

A process that left the group (`setsid`, `nohup`, a daemon) is known by a variable in its environment, which it
inherited: `YARROW_CALL_ID`. One that left the group and also cleared its environment is found only while the
process that started it lives.
"""

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from yarrow.platform import system

MARKER = "YARROW_CALL_ID"
"""The variable, in the environment of every process of a call, that holds the call's marker and those of the calls
within which it runs, if the program that runs is itself one that runs calls."""
ENVIRON_BYTES = 262_144
"""How much of a process's environment is searched for the marker."""
MAX_EXEC_READS = 20
EXEC_SECONDS = 0.000_2
"""How often, and how far apart, a process is looked at that seems to be in the middle of exec."""
FRESH_SECONDS = 0.5
FRESH_PIDS = 1_000
"""Within that time, and up to so many new processes, process numbers cannot have gone once round."""


class _ProcessStat(Struct):
    """What the system says of a process."""

    parent: int
    group: int
    session: int


class ProcessTree(Protocol):
    """The processes of one call, as far as they run."""

    def alive(self) -> list[int]:
        """Return what `kill` and `send` can be given to reach those that still run."""
        ...

    def kill(self, targets: Iterable[int]) -> None:
        """Kill the targets, and all that is held together with them."""
        ...

    def send(self, number: signal.Signals, targets: Iterable[int]) -> None:
        """Send a signal; who is gone or not ours to signal is passed over."""
        ...


def open_process_tree(leader: int, marker: str) -> ProcessTree:
    """Return what `leader`, which was just started with a marker of its own, starts; by what the system has for it."""
    return system.create_job(leader) or ProcfsProcessTree(leader, marker)


class ProcfsProcessTree:
    """The processes of one call; `leader` started them all, in a session and a group of its own.

    `marker` is a text that no other process has in its environment.
    """

    def __init__(self, leader: int, marker: str) -> None:
        self._leader = leader
        self._marker = marker.encode()
        self._born = time.monotonic()

    def alive(self) -> list[int]:
        """Return what `os.kill` can be given to reach those that still run; zombies do not run.

        Without /proc that is the group alone, as one negative number.
        """
        if not has_own_proc():
            return [-self._leader] if self._group_exists() else []
        last = _last_pid()
        found = self._among(self._since_start(last))
        # Who was started meanwhile was not looked at, and who started it may have ended since.
        while not found and (now_last := _last_pid()) != last:
            found = self._among(range(last + 1, now_last + 1) if now_last > last else _all_pids())
            last = now_last
        return found

    def kill(self, targets: Iterable[int]) -> None:
        """Send SIGKILL to the targets, and to the group as a whole, which none can escape by forking.

        As long as the leader was not reaped, or others of the group live, its number cannot be a stranger's.
        """
        self.send(system.KILL_SIGNAL, [-self._leader, *targets])

    def send(self, number: signal.Signals, targets: Iterable[int]) -> None:
        """Send a signal; who is gone or not ours to signal is passed over."""
        for target in targets:
            try:
                os.kill(target, number)
            except (ProcessLookupError, PermissionError):
                continue

    def _since_start(self, last: int) -> Iterable[int]:
        """Return the processes that can be of the family: those started since, when that can be told cheaply.

        Numbers are given out in rising order, so that after a short call they are few or none.
        """
        is_fresh = time.monotonic() - self._born < FRESH_SECONDS
        if is_fresh and 0 <= last - self._leader < FRESH_PIDS:
            return range(self._leader, last + 1)
        return _all_pids()

    def _among(self, candidates: Iterable[int]) -> list[int]:
        found: set[int] = set()
        for pid in candidates:  # in rising order, so that a parent mostly comes before its children
            if self._belongs(pid, found):
                found.add(pid)
        return sorted(found)

    def _belongs(self, pid: int, found: set[int]) -> bool:
        stat = _stat(pid)
        if stat is None:
            return False
        if self._leader in {pid, stat.group, stat.session, stat.parent} or stat.parent in found:
            return True
        return self._marker in _environment(pid)

    def _group_exists(self) -> bool:
        try:
            os.kill(-self._leader, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def has_own_proc() -> bool:
    """Whether /proc is there and speaks of our own process numbers (not of the host's, in a container)."""
    try:
        return Path("/proc/self").readlink().name == str(os.getpid())
    except OSError:
        return False


def _last_pid() -> int:
    """Return the number given out last, 0 when it is not told."""
    fields = _read("/proc/loadavg", 256).split()
    return int(fields[4]) if len(fields) > 4 else 0


def _all_pids() -> list[int]:
    return sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def _environment(pid: int) -> bytes:
    """Return a process's environment. In the middle of exec it seems to have none, nor any arguments; that passes."""
    for _ in range(MAX_EXEC_READS):
        environment = _read(f"/proc/{pid}/environ", ENVIRON_BYTES)
        if environment or _read(f"/proc/{pid}/cmdline", 1) or _stat(pid) is None:
            return environment
        time.sleep(EXEC_SECONDS)  # shorter than a turn of the event loop, and exec is over by then
    return b""


def _stat(pid: int) -> _ProcessStat | None:
    """Return what the system says of a process, None when it is gone, a zombie or a thread of the kernel."""
    # The name of the program, in parentheses, may itself hold spaces and parentheses.
    fields = _read(f"/proc/{pid}/stat", 4_096).rpartition(b")")[2].split()
    if len(fields) < 4 or fields[0] in {b"Z", b"X"} or fields[3] == b"0":
        return None
    return _ProcessStat(int(fields[1]), int(fields[2]), int(fields[3]))


def _read(path: str, size: int) -> bytes:
    """Return the start of a file, nothing when it is gone or not ours to read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | system.BASE_FLAGS)
    except OSError:
        return b""
    try:
        return os.read(descriptor, size)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
