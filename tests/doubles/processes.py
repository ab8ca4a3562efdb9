"""Processes that a test did not start itself, by what the system tells of them."""

import asyncio
from pathlib import Path

SECONDS = 20.0
"""How long one may take to end; then the test fails."""


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
