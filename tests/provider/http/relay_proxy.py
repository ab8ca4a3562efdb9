"""A loopback proxy that opens ways with CONNECT, in whatever words a test gives it, and always to the same server."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

from byte_script_server import turns

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class RelayProxy:
    """Answers with `pieces`, each a read of its own for the client, then passes bytes on to `target`."""

    def __init__(self, target: int, pieces: Sequence[bytes]) -> None:
        self.port = 0
        self.heads: list[bytes] = []
        self._target = target
        self._pieces = pieces
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(self._serve(reader, writer)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far: asyncio.StreamWriter | None = None
        try:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            answers, far = await asyncio.open_connection("127.0.0.1", self._target)
            for piece in self._pieces:
                writer.write(piece)
                await turns()
            await asyncio.gather(_pass(reader, far), _pass(answers, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()
            if far is not None:
                far.transport.abort()


async def _pass(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.close()


@asynccontextmanager
async def relay(target: int, *pieces: bytes, tls: ssl.SSLContext | None = None) -> AsyncGenerator[RelayProxy]:
    """Run a proxy whose every way leads to the port `target` of this machine."""
    proxy = RelayProxy(target, pieces or (ESTABLISHED,))
    listener = await asyncio.start_server(proxy.start, "127.0.0.1", 0, ssl=tls)
    proxy.port = listener.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listener.close()
        await proxy.stop()
        await listener.wait_closed()
