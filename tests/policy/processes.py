"""Sees which processes of a test are alive, by a variable that all of them inherit."""

import os
import uuid
from pathlib import Path

TAG = "YARROW_TEST_TAG"


def new_tag() -> str:
    return uuid.uuid4().hex


def alive(tag: str) -> list[str]:
    """Return the command lines of the processes, other than zombies, in whose environment the tag is."""
    found: list[str] = []
    for pid in alive_pids(tag):
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def alive_pids(tag: str) -> list[int]:
    """Return the processes, other than zombies and this one, in whose environment the tag is."""
    found: list[int] = []
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit() or int(directory.name) == os.getpid():
            continue
        try:
            environ = (directory / "environ").read_bytes()
            state = (directory / "stat").read_text().rpartition(")")[2].split()[0]
            if f"{TAG}={tag}".encode() in environ and state not in "ZX":
                found.append(int(directory.name))
        except OSError:
            continue
    return found


def running(argument: str) -> bool:
    """True if a process with this argument runs."""
    for directory in Path("/proc").iterdir():
        try:
            if argument in (directory / "cmdline").read_text().split("\0"):
                return True
        except OSError:
            continue
    return False


def zombies() -> int:
    """Return how many children of ours have ended and were not reaped."""
    count = 0
    for directory in Path("/proc").iterdir():
        try:
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        count += fields[:2] == ["Z", str(os.getpid())]
    return count


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
