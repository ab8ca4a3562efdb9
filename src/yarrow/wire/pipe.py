"""A bounded one-way queue of serialised messages between the two ends of a call."""

import asyncio
from collections import deque

YIELD_EVERY = 64
"""After so many messages the writer lets the loop run, or a handler that never waits would starve its reader."""


class Pipe:
    """Messages in the order they were written; when `capacity` of them wait, `write` waits for the reader."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._messages: deque[bytes] = deque()
        self._written = 0
        self._ended = False
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()

    @property
    def drained(self) -> bool:
        """Whether the writer has ended and everything it wrote has been read."""
        return self._ended and not self._messages

    async def write(self, message: bytes) -> None:
        """Adds a message; one that comes after the end is dropped, for nobody reads it."""
        while len(self._messages) >= self._capacity and not self._ended:
            self._writable.clear()
            await self._writable.wait()
        if self._ended:
            return
        self._messages.append(message)
        self._readable.set()
        self._written += 1
        if self._written % YIELD_EVERY == 0:
            await asyncio.sleep(0)

    async def read(self) -> bytes | None:
        """Returns the next message, or None once the pipe is drained."""
        while not self._messages:
            if self._ended:
                return None
            self._readable.clear()
            await self._readable.wait()
        self._writable.set()
        return self._messages.popleft()

    def end(self) -> None:
        """Says that no message follows; those that wait can still be read."""
        self._ended = True
        self._readable.set()
        self._writable.set()

    def close(self) -> None:
        """Ends the pipe and drops what nobody will read."""
        self._messages.clear()
        self.end()
