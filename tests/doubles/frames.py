"""HTTP/2 by hand: frames that no library would send, and what is answered to them."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS = 1, 4
SOON = 20.0
"""Seconds that all of what is done with one connection may take."""


class Frame(NamedTuple):
    """One frame that was received."""

    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """The bytes of a frame."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def packed(headers: Sequence[tuple[str, str]]) -> bytes:
    """A block of headers, each written out in full."""
    return b"".join(b"\0" + _sized(name.encode()) + _sized(value.encode()) for name, value in headers)


def _sized(text: bytes) -> bytes:
    if len(text) < 127:
        return bytes([len(text)]) + text
    left, size = len(text) - 127, bytearray([127])
    while left >= 128:
        size.append(left % 128 + 128)
        left //= 128
    return bytes([*size, left]) + text


def calling(path: str, *more: tuple[str, str], authority: str = "localhost") -> bytes:
    """The headers of a call."""
    begin = ((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", authority))
    return packed((*begin, ("content-type", "application/grpc"), ("te", "trailers"), *more))


class Wire:
    """A connection to a service whose preface was sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, *frames: bytes) -> None:
        """Send, unless the service has hung up."""
        try:
            self._writer.write(b"".join(frames))
            await self._writer.drain()
        except ConnectionError:
            return

    async def receive(self) -> Frame | None:
        """The next frame; None when the service has hung up."""
        try:
            head = await self._reader.readexactly(9)
            payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return Frame(head[3], head[4], int.from_bytes(head[5:9], "big"), payload)

    async def until(self, kind: int) -> Frame | None:
        """The next frame of a kind; None when the service has hung up before."""
        while (found := await self.receive()) is not None:
            if found.kind == kind:
                return found
        return None


@asynccontextmanager
async def wired(address: str, preface: bytes = PREFACE + frame(SETTINGS)) -> AsyncGenerator[Wire]:
    """A connection to a unix socket, which is done with `SOON`."""
    reader, writer = await asyncio.open_unix_connection(address.removeprefix("unix:"))
    try:
        async with asyncio.timeout(SOON):
            wire = Wire(reader, writer)
            await wire.send(preface)
            yield wire
    finally:
        writer.transport.abort()
