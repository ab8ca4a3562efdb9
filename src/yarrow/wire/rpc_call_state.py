"""One call in flight: its metadata, its state, and the bounded queues that both sides share."""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import grpc
from msgspec import Struct

MAX_METADATA_BYTES = 8 * 1024
"""Maximum bytes of the metadata that one end sends at once, including the details of a status.

A connection always refuses more than 16 KiB, and sometimes more than this; here the limit is strict.
"""

_ENTRY_BYTES = 32
"""Overhead in bytes that HTTP/2 counts for each entry."""

_KEY = r"[0-9a-z_.-]+"
_TEXT = r"[\x20-\x7e]*"


class Metadatum(NamedTuple):
    """One key and its value; bytes if the key ends in -bin, else text."""

    key: str
    value: str | bytes


Metadata = tuple[Metadatum, ...]


def checked(metadata: Iterable[tuple[str, str | bytes]] | None) -> Metadata:
    """Return the metadata as the other end sees it.

    Raises ValueError for a key or text that HTTP/2 forbids, TypeError for a value of the wrong type.
    """
    return tuple(Metadatum(key, _value(key, value)) for key, value in metadata or ())


def size(metadata: Metadata) -> int:
    """Return the size of metadata in bytes, as counted on a connection."""
    return sum(len(key) + len(value) + _ENTRY_BYTES for key, value in metadata)


def _value(key: str, value: str | bytes) -> str | bytes:
    if not re.fullmatch(_KEY, key):
        raise ValueError(f"metadata key {key!r} has a character outside 0-9 a-z _ . -")
    if key.endswith("-bin"):
        if not isinstance(value, bytes):
            raise TypeError(f"metadata value under {key!r} must be bytes, not {type(value).__name__}")
        return value
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    if not re.fullmatch(_TEXT, text):
        raise ValueError(f"metadata value {text!r} under {key!r} is not printable ASCII; end the key in -bin")
    return text


RESPONSES_WAITING = 256
"""Maximum unread responses of one call; beyond it the handler's `write` waits, as with flow control."""

REQUESTS_WAITING = 16
"""Maximum unread requests of one call; beyond it the client's `write` waits."""


class Status(Struct, frozen=True):
    """Final status of a call."""

    code: grpc.StatusCode
    details: str = ""
    trailing_metadata: Metadata = ()


CANCELLED = Status(grpc.StatusCode.CANCELLED, "Locally cancelled by application!")
METADATA_TOO_LARGE = Status(
    grpc.StatusCode.RESOURCE_EXHAUSTED, f"received metadata size exceeds limit of {MAX_METADATA_BYTES} bytes"
)
DEADLINE_EXCEEDED = Status(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")


def too_large(end: str, size: int, limit: int) -> Status:
    """Return the status of a call whose CLIENT or SERVER end tried to send `size` bytes in one message."""
    details = f"{end}: Sent message larger than max ({size} vs. {limit})"
    return Status(grpc.StatusCode.RESOURCE_EXHAUSTED, details)


class Rpc:
    """One call in flight.

    The server end calls `finish`: the client learns the status after reading the responses written earlier. The client
    end, or its deadline, calls `terminate`: unread messages are dropped and the handler is cancelled. The first of
    these wins.
    """

    def __init__(self, method: str, metadata: Metadata, timeout: float | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.method = method
        self.metadata = metadata
        self.request = b""
        """The request of a call that has exactly one."""
        self.requests = Pipe(REQUESTS_WAITING)
        self.responses = Pipe(RESPONSES_WAITING)
        self.response = b""
        """The response of a call that has exactly one."""
        self.handler: asyncio.Task[None] | None = None
        """Task of the servicer's method; None if the call failed before it started."""
        self.initial_metadata: Metadata = ()
        self.final: Status | None = None
        """Status sent by the server end."""
        self.status: Status | None = None
        """Status known to the client end."""
        self._opened = asyncio.Event()
        self._settled = asyncio.Event()
        self._callbacks: list[Callable[[], object]] = []
        self._deadline = None if timeout is None else self.loop.time() + timeout
        if self._deadline is not None:
            timer = self.loop.call_at(self._deadline, self.terminate, DEADLINE_EXCEEDED)
            self._callbacks.append(timer.cancel)

    @property
    def terminated(self) -> bool:
        """The client end or the deadline ended the call."""
        return self.status is not None and self.status is not self.final

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline, at least 0; None without a deadline."""
        return None if self._deadline is None else max(0.0, self._deadline - self.loop.time())

    # ---- the server end ----

    @property
    def opened(self) -> bool:
        """The initial metadata was sent."""
        return self._opened.is_set()

    def open(self, metadata: Metadata = ()) -> None:
        """Send the initial metadata, unless it was already sent."""
        if self._opened.is_set():
            return
        if size(metadata) > MAX_METADATA_BYTES:
            self.terminate(METADATA_TOO_LARGE)
            return
        self.initial_metadata = metadata
        self._opened.set()

    def finish(self, status: Status) -> None:
        """End the call from the server, after the pending responses."""
        if self.final is not None or self.status is not None:
            return
        # A lone surrogate, as in a file name that is not UTF-8, cannot be encoded on the wire.
        details = status.details.encode(errors="backslashreplace")
        if size(status.trailing_metadata) + len(details) > MAX_METADATA_BYTES:
            self.final = METADATA_TOO_LARGE
        else:
            self.final = Status(status.code, details.decode(), status.trailing_metadata)
        self.responses.end()
        self.requests.close()
        if self.responses.drained:
            self._settle(self.final)

    # ---- the client end ----

    def terminate(self, status: Status) -> bool:
        """End the call from the client, immediately; return whether it was still running."""
        if self.status is not None:
            return False
        self.responses.close()
        self.requests.close()
        if self.handler is not None:
            self.handler.cancel()
        self._settle(status)
        return True

    async def receive(self) -> bytes | None:
        """Return the next response, or None at the end, when the status is known.

        Cancelling the wait cancels the call.
        """
        try:
            message = await self.responses.read()
        except asyncio.CancelledError:
            self.terminate(CANCELLED)
            raise
        if self.final is not None and self.responses.drained:
            self._settle(self.final)
        return message

    async def wait_opened(self) -> None:
        """Wait for the initial metadata; a call that ends without any has empty metadata."""
        await self._opened.wait()

    async def wait_settled(self) -> Status:
        """Wait for the status."""
        while self.status is None:
            await self._settled.wait()
        return self.status

    def on_settled(self, callback: Callable[[], object]) -> None:
        """Call back when the status is known, immediately if it already is."""
        if self.status is None:
            self._callbacks.append(callback)
        else:
            callback()

    def _settle(self, status: Status) -> None:
        if self.status is not None:
            return
        self.status = status
        self.open()
        self._settled.set()
        for callback in self._callbacks:
            callback()
        self._callbacks.clear()


def notify(callback: Callable[[Any], object], subject: object) -> None:
    """Run a done callback of the application; a failure is logged and affects nothing else."""
    try:
        callback(subject)
    except Exception as error:  # noqa: BLE001 it is the application's code, and the call must end whatever that does
        context = {"message": f"done callback {callback!r} of a call failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)


YIELD_EVERY = 64
"""Messages after which the writer yields to the loop; a handler that never waits would starve its reader."""


class Pipe:
    """Messages in order; once `capacity` of them are unread, `write` waits for the reader."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._messages: deque[bytes] = deque()
        self._written = 0
        self._ended = False
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()

    @property
    def drained(self) -> bool:
        """The writer has ended and everything it wrote has been read."""
        return self._ended and not self._messages

    async def write(self, message: bytes) -> None:
        """Add a message; after the end it is dropped, because it would never be read."""
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
        """Return the next message, or None once the pipe is drained."""
        while not self._messages:
            if self._ended:
                return None
            self._readable.clear()
            await self._readable.wait()
        self._writable.set()
        return self._messages.popleft()

    def end(self) -> None:
        """Signal that no message follows; pending ones can still be read."""
        self._ended = True
        self._readable.set()
        self._writable.set()

    def close(self) -> None:
        """End the pipe and drop its unread messages."""
        self._messages.clear()
        self.end()
