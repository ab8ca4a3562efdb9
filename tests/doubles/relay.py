"""A wire that a test can cut: passes bytes between a client's unix socket and a service's."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path


class Relay:
    """One listening socket, and the connections through it."""

    def __init__(self, target: str) -> None:
        self.target = target
        """Where the service listens now: the path of a unix socket, or HOST:PORT."""
        self.cuts: list[int] = []
        """Bytes from the service after which a connection is cut, one number for each connection to come."""
        self.is_down = False
        """True if all connections are refused."""
        self.is_mute = False
        """True if the service's output is lost on the way."""
        self._lost = 0
        """Connections up to which nothing is passed on any more."""
        self._connections = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._work: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Cut what is open."""
        for writer in tuple(self._open):
            writer.transport.abort()

    def lose(self) -> None:
        """Stop forwarding on open connections without closing them."""
        self._lost = self._connections

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a client."""
        if self.is_down:
            writer.transport.abort()
            return
        try:
            there, far = await self._reach()
        except OSError:
            writer.transport.abort()
            return
        self._connections += 1
        number = self._connections
        left = self.cuts.pop(0) if self.cuts else sys.maxsize
        self._open |= {writer, far}
        passing = [
            asyncio.ensure_future(self._pass(reader, far)),
            asyncio.ensure_future(self._answer(there, writer, left=left, number=number)),
        ]
        self._work |= set(passing)
        await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        for one in (writer, far):
            one.transport.abort()
        await asyncio.wait(passing)
        self._open -= {writer, far}

    async def close(self) -> None:
        """Cut everything and wait for it."""
        self.is_down = True
        self.cut()
        if self._work:
            await asyncio.wait(self._work)

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.target.startswith("/"):
            return await asyncio.open_unix_connection(self.target)
        host, _, port = self.target.rpartition(":")
        return await asyncio.open_connection(host, int(port))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, left: int, number: int
    ) -> None:
        with suppress(OSError):
            while left and (data := await reader.read(min(1 << 16, left))):
                left -= len(data)
                if not self.is_mute and number > self._lost:
                    writer.write(data)
                    await writer.drain()


@asynccontextmanager
async def relay(target: str, socket: Path) -> AsyncGenerator[Relay]:
    """Pass what comes to `socket` on to `target`."""
    one = Relay(target)
    server = await asyncio.start_unix_server(one.meet, socket)
    try:
        yield one
    finally:
        server.close()
        await one.close()
