"""Discovery and signaling of all processes of one call: its group, session, descendants and detached processes.

A process that left the group (`setsid`, `nohup`, a daemon) is recognized by a variable in the environment it inherited:
`YARROW_CALL_ID`. One that left the group and also cleared its environment is found only while its parent is alive.
"""

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from yarrow.platform import system

if TYPE_CHECKING:
    from yarrow.platform.base import ProcessTree

MARKER = "YARROW_CALL_ID"
"""Environment variable of every process of a call: the call's marker, after those of the calls that enclose it.

Calls are nested if the program that a call runs is itself one that runs calls.
"""
ENVIRON_BYTES = 262_144
"""Maximum bytes of a process's environment searched for the marker."""
MAX_EXEC_READS = 20
EXEC_SECONDS = 0.000_2
"""Maximum reads of a process that seems to be in the middle of exec, and the delay in seconds between them."""
FRESH_SECONDS = 0.5
FRESH_PIDS = 1_000
"""Age of a tree in seconds and number of new processes within which process numbers cannot have wrapped around."""


class _ProcessStat(Struct):
    """Status of a process as reported by the system."""

    parent: int
    group: int
    session: int


def open_process_tree(leader: int, marker: str) -> "ProcessTree":
    """Return the process tree of `leader`, a new process with its own marker, as the system supports it."""
    return system.create_job(leader) or ProcfsProcessTree(leader, marker)


class ProcfsProcessTree:
    """The processes of one call, started by `leader` in its own session and group, found in /proc.

    `marker` is a text that no other process has in its environment.
    """

    def __init__(self, leader: int, marker: str) -> None:
        self._leader = leader
        self._marker = marker.encode()
        self._born = time.monotonic()

    def alive(self) -> list[int]:
        """Return arguments for `os.kill` that reach the running processes; zombies are not running.

        Without /proc, this is only the group, as one negative number.
        """
        if not has_own_proc():
            return [-self._leader] if self._group_exists() else []
        last = _last_pid()
        found = self._among(self._since_start(last))
        # Processes started meanwhile were not checked, and the processes that started them may have ended since.
        while not found and (now_last := _last_pid()) != last:
            found = self._among(range(last + 1, now_last + 1) if now_last > last else _all_pids())
            last = now_last
        return found

    def kill(self, targets: Iterable[int]) -> None:
        """Send SIGKILL to the targets and to the whole group, which no process can escape by forking.

        While the leader is not reaped or other processes of the group live, its number cannot belong to another
        process.
        """
        self.send(system.KILL_SIGNAL, [-self._leader, *targets])

    def send(self, number: signal.Signals, targets: Iterable[int]) -> None:
        """Send a signal; targets that are gone or not ours are skipped."""
        for target in targets:
            try:
                os.kill(target, number)
            except (ProcessLookupError, PermissionError):
                continue

    def _since_start(self, last: int) -> Iterable[int]:
        """Return the processes that may belong to the call: those started since it, if they can be determined cheaply.

        Numbers are assigned in ascending order, so that after a short call there are few or none.
        """
        is_fresh = time.monotonic() - self._born < FRESH_SECONDS
        if is_fresh and 0 <= last - self._leader < FRESH_PIDS:
            return range(self._leader, last + 1)
        return _all_pids()

    def _among(self, candidates: Iterable[int]) -> list[int]:
        found: set[int] = set()
        for pid in candidates:  # ascending order, so that a parent usually precedes its children
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
    """Return whether /proc exists and uses our own process numbers (not the host's, as in some containers)."""
    try:
        return Path("/proc/self").readlink().name == str(os.getpid())
    except OSError:
        return False


def _last_pid() -> int:
    """Return the number assigned last; 0 if unknown."""
    fields = _read("/proc/loadavg", 256).split()
    return int(fields[4]) if len(fields) > 4 else 0


def _all_pids() -> list[int]:
    return sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def _environment(pid: int) -> bytes:
    """Return a process's environment; during exec, it briefly appears to have neither environment nor arguments."""
    for _ in range(MAX_EXEC_READS):
        environment = _read(f"/proc/{pid}/environ", ENVIRON_BYTES)
        if environment or _read(f"/proc/{pid}/cmdline", 1) or _stat(pid) is None:
            return environment
        time.sleep(EXEC_SECONDS)  # shorter than an event loop iteration, and exec is over by then
    return b""


def _stat(pid: int) -> _ProcessStat | None:
    """Return the status of a process; None if it is gone, a zombie or a kernel thread."""
    # The program name, in parentheses, may itself contain spaces and parentheses.
    fields = _read(f"/proc/{pid}/stat", 4_096).rpartition(b")")[2].split()
    if len(fields) < 4 or fields[0] in {b"Z", b"X"} or fields[3] == b"0":
        return None
    return _ProcessStat(int(fields[1]), int(fields[2]), int(fields[3]))


def _read(path: str, size: int) -> bytes:
    """Return the start of a file; empty if it is gone or unreadable."""
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
