"""A loopback proxy between a provider and a model server that injects configured faults into answers."""

import asyncio
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from doubles.loopback import Loopback

FAULTS = ("reset", "end", "cut", "short", "stall", "garbage", "noise", "storm")
Kind = Literal["reset", "end", "cut", "short", "stall", "garbage", "noise", "storm"]
ANSWERS = ("chat", "messages", "completions", "streamGenerateContent?alt=sse")
"""How the paths end at which a model answers; what else is asked is about the model."""
_SLOW_DOWN = b'{"error":{"message":"slow down please"}}'
TOO_MANY = b"HTTP/1.1 429 X\r\ncontent-type: application/json\r\nretry-after: 1\r\ncontent-length: %d\r\n\r\n%b" % (
    len(_SLOW_DOWN),
    _SLOW_DOWN,
)
UNREADABLE = b"\n\xff\x00\xfe}{]data: \xc3\n\n"
"""Garbage on a line of its own, so that the next line is complete: neither text nor JSON, nor a size."""


class Fault(NamedTuple):
    """A fault of one answer after `after` of its chunks (-1: before its head).

    `reset` and `end` close the connection, in disorder or in order; `cut` does so inside the next chunk; `short` ends
    the body as if it were complete; `stall` sends nothing more; `garbage` and `noise` send unreadable data, in place
    of a chunk or inside one, and then the rest; `storm` answers 429.
    """

    kind: Kind
    after: int = 0


class FaultProxy(Loopback):
    """Listens on 127.0.0.1 inside `async with`, and sends everything on to `upstream`, an `http://` address."""

    def __init__(self, upstream: str, *, asked: Callable[[bytes], None]) -> None:
        super().__init__(self._one)
        self.faults: Mapping[int, Fault] = {}
        """By the number of the question to the model, from 0."""
        self.questions = 0
        self.aside: Fault | None = None
        """Faults of every answer about the model."""
        self.happened: list[Fault] = []
        self._host, _, self._port = upstream.removeprefix("http://").partition(":")
        self._asked = asked

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False when the connection is of no use any more."""
        head, body = await _message(reader)
        path = head.split(b" ", 2)[1].decode()
        fault = self.aside
        if path.endswith(ANSWERS):
            fault = self.faults.get(self.questions)
            self.questions += 1
            self._asked(body)
        if fault is not None and fault.kind == "storm":
            self.happened.append(fault)
            writer.write(TOO_MANY)
            await writer.drain()
            return True
        from_server, to_server = await asyncio.open_connection(self._host, int(self._port))
        try:
            to_server.write(head + body)
            answer = await from_server.readuntil(b"\r\n\r\n")
            if fault is not None and fault.after < 0:
                return await self._break(fault, reader, writer, b"")
            writer.write(answer)
            return await self._body(fault, from_server, reader, writer)
        finally:
            to_server.transport.abort()

    async def _body(
        self,
        fault: Fault | None,
        from_server: asyncio.StreamReader,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        number = 0
        while True:
            chunk = await _chunk(from_server)
            if fault is not None and fault.after == number and not await self._break(fault, reader, writer, chunk):
                return False
            if fault is not None and fault.after == number and fault.kind == "short":
                return True
            writer.write(chunk)
            await writer.drain()
            await asyncio.sleep(0)
            number += 1
            if chunk == b"0\r\n\r\n":
                return True

    async def _break(
        self, fault: Fault, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chunk: bytes
    ) -> bool:
        """Let the fault happen; False when the connection is broken by it."""
        self.happened.append(fault)
        match fault.kind:
            case "reset":
                linger: socket.socket = writer.get_extra_info("socket")
                linger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            case "end":
                pass
            case "cut":
                writer.write(chunk[: len(chunk) // 2])
            case "short":
                writer.write(b"0\r\n\r\n" if chunk else b"")
            case "stall":
                await reader.read()  # until the other side has had enough
            case "garbage":
                writer.write(UNREADABLE)
            case "noise":
                writer.write(b"%x\r\n%b\r\n" % (len(UNREADABLE), UNREADABLE))
            case "storm":
                raise AssertionError("a storm has no place inside an answer")
        if fault.kind in ("short", "garbage", "noise") and chunk:
            return True
        if fault.kind != "reset":
            await writer.drain()
            writer.close()
        else:
            writer.transport.abort()
        return False


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    sizes = [line.partition(b":")[2] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return head, await reader.readexactly(int(sizes[0]) if sizes else 0)


async def _chunk(reader: asyncio.StreamReader) -> bytes:
    """One chunk as it is on the wire, the last included."""
    size = await reader.readuntil(b"\r\n")
    return size + await reader.readexactly(int(size, 16) + 2)
