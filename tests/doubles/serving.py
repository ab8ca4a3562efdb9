"""`yarrow serve` as a separate process, for as long as a test needs it."""

import asyncio
import contextlib
import re
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import NamedTuple

from doubles.world import World

SECONDS = 30
"""How long a line, or the end, may take; then the test fails."""


class Reached(NamedTuple):
    """A service that listens on the loopback."""

    address: str
    said: str
    """All that it wrote until it listened."""


@contextlib.asynccontextmanager
async def served(world: World, socket: Path) -> AsyncGenerator[Process]:
    """Serve on a socket; a test may end the process itself."""
    process = await world.start("serve", "--socket", str(socket))
    assert process.stderr is not None
    line = await asyncio.wait_for(process.stderr.readline(), SECONDS)
    assert b"listening" in line, line + await process.stderr.read()
    try:
        yield process
    finally:
        if process.returncode is None:
            await _end(process)


@contextlib.asynccontextmanager
async def listening(world: World, *flags: str) -> AsyncGenerator[Reached]:
    """Serve on the network too."""
    process = await world.start("serve", "--listen", "127.0.0.1:0", *flags)
    assert process.stderr is not None
    said = ""
    while not (found := re.search(r" and (\S+);", said)):
        line = await asyncio.wait_for(process.stderr.readline(), SECONDS)
        assert line, said
        said += line.decode()
    try:
        yield Reached(found[1], said)
    finally:
        await _end(process)


async def _end(process: Process) -> None:
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), SECONDS) == 0
