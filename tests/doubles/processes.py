"""Processes that a test did not start itself, found through the system."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS = 20.0
"""How long one may take to end; then the test fails."""


STARTS = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system", "pty.spawn")

_watched: list[str] | None = None


def _on_audit(event: str, _arguments: tuple[object, ...]) -> None:
    if _watched is not None and event in STARTS:
        _watched.append(event)


sys.addaudithook(_on_audit)  # it cannot be removed again, and so is off except for a test


@contextmanager
def watching_for_processes() -> Iterator[list[str]]:
    """Collect what this process starts meanwhile, by the name of the call."""
    global _watched  # noqa: PLW0603
    _watched = []
    try:
        yield _watched
    finally:
        _watched = None


async def gone(pid: int) -> None:
    """Wait until a process is no more."""
    async with asyncio.timeout(SECONDS):
        while _state(pid) != "Z":
            await asyncio.sleep(0.01)


def children(pid: int) -> list[int]:
    """The processes that one started and that are still there."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _state(pid: int) -> str:
    """The state of a process; one that is no more is in the same as one that waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
