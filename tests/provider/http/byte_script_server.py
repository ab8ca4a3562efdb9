"""A loopback server that plays a script of bytes, whatever they are, and tells what its clients did."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from enum import Enum, auto


class Do(Enum):
    """Actions of a script besides sending bytes."""

    READ = auto()
    """Read one request: its head, and a body of the announced length."""
    CLOSE = auto()
    RESET = auto()
    STALL = auto()
    """Neither read nor send any more."""


Step = bytes | Do | asyncio.Event
Script = Sequence[Step]


class Visit:
    """One connection as the server sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.requests: list[bytes] = []
        self.asked = asyncio.Event()
        """Set when a request has been read."""
        self.gone = asyncio.Event()
        """Set when the connection is closed, by whichever side."""


class ByteServer:
    """Plays one script per connection, the last one again for all further connections."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        self.visits: list[Visit] = []
        self.port = 0
        self._scripts = scripts
        self._arrival = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def visit(self, number: int) -> Visit:
        """Wait for the connection with this number, from 0."""
        async with self._arrival:
            await self._arrival.wait_for(lambda: len(self.visits) > number)
        return self.visits[number]

    def start(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._play(reader, writer))
        self._tasks.add(task)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = Visit(reader, writer)
        script = self._scripts[min(len(self.visits), len(self._scripts) - 1)]
        self.visits.append(visit)
        async with self._arrival:
            self._arrival.notify_all()
        try:
            for step in script:
                await self._step(step, visit)
            while await reader.read(65536):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()
            visit.gone.set()

    async def _step(self, step: Step, visit: Visit) -> None:
        match step:
            case bytes():
                visit.writer.write(step)
                await turns()
            case asyncio.Event():
                await step.wait()
            case Do.READ:
                visit.requests.append(await _read_request(visit.reader))
                visit.asked.set()
            case Do.STALL:
                await asyncio.Event().wait()
            case Do.CLOSE:
                visit.writer.close()
                await visit.writer.wait_closed()
            case Do.RESET:
                raw = visit.writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                visit.writer.transport.abort()


async def turns(count: int = 4) -> None:
    """Let the loop go round, so that a client in it reads what was sent as a read of its own."""
    for _ in range(count):
        await asyncio.sleep(0)


async def _read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b"0")
    return head + await reader.readexactly(int(length))


@asynccontextmanager
async def serve(*scripts: Script, tls: ssl.SSLContext | None = None) -> AsyncGenerator[ByteServer]:
    """Run a server for these scripts."""
    server = ByteServer(scripts)
    listener = await asyncio.start_server(server.start, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        await server.stop()
        await listener.wait_closed()


def answer(body: bytes = b"ok", *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """A response with a length."""
    lines = [b"HTTP/1.1 " + status, b"content-length: %d" % len(body), *headers]
    return b"\r\n".join([*lines, b"", body])


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    """A response in chunks."""
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + body + end
