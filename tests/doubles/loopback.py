"""A server on the loopback that answers requests one after another on each connection, and ends with its test."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool]]
"""Answers one request; False when the connection is of no use any more."""


class Loopback:
    """Listens on 127.0.0.1 inside `async with`; belongs to the event loop of the test."""

    def __init__(self, answer: Answer) -> None:
        self.connections = 0
        self._answer = answer
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.root = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()
