"""One call in flight: the state and the bounded queues that both sides share."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc
from msgspec import Struct

from yarrow.wire.metadata import MAX_METADATA_BYTES, Metadata, size

RESPONSES_WAITING = 256
"""Responses of one call that may wait for its client; then the handler's `write` waits, as with flow control."""

REQUESTS_WAITING = 16
"""Requests of one call that may wait for its handler; then the client's `write` waits."""


class Status(Struct, frozen=True):
    """How a call ended."""

    code: grpc.StatusCode
    details: str = ""
    trailing_metadata: Metadata = ()


CANCELLED = Status(grpc.StatusCode.CANCELLED, "Locally cancelled by application!")
METADATA_TOO_LARGE = Status(
    grpc.StatusCode.RESOURCE_EXHAUSTED, f"received metadata size exceeds limit of {MAX_METADATA_BYTES} bytes"
)
DEADLINE_EXCEEDED = Status(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")


def too_large(end: str, size: int, limit: int) -> Status:
    """Returns the status of a call whose CLIENT or SERVER end tried to send `size` bytes in one message."""
    details = f"{end}: Sent message larger than max ({size} vs. {limit})"
    return Status(grpc.StatusCode.RESOURCE_EXHAUSTED, details)


class Rpc:
    """One call in flight.

    The server end `finish`es it: the client learns the status after it has read the responses that were written
    before. The client end, or its deadline, `terminate`s it: unread messages are dropped and the handler is
    cancelled. Whichever comes first stands.
    """

    def __init__(self, method: str, metadata: Metadata, timeout: float | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.method = method
        self.metadata = metadata
        self.request = b""
        """The question of a call that has exactly one."""
        self.requests = Pipe(REQUESTS_WAITING)
        self.responses = Pipe(RESPONSES_WAITING)
        self.response = b""
        """The answer of a call that has exactly one."""
        self.handler: asyncio.Task[None] | None = None
        """Runs the servicer's method; None where the call failed before it was started."""
        self.initial_metadata: Metadata = ()
        self.final: Status | None = None
        """What the server end said."""
        self.status: Status | None = None
        """What the client end knows."""
        self._opened = asyncio.Event()
        self._settled = asyncio.Event()
        self._callbacks: list[Callable[[], object]] = []
        self._deadline = None if timeout is None else self.loop.time() + timeout
        if self._deadline is not None:
            timer = self.loop.call_at(self._deadline, self.terminate, DEADLINE_EXCEEDED)
            self._callbacks.append(timer.cancel)

    @property
    def terminated(self) -> bool:
        """Whether the client end or the deadline ended the call."""
        return self.status is not None and self.status is not self.final

    def time_remaining(self) -> float | None:
        """Returns the seconds until the deadline, at least 0; None without a deadline."""
        return None if self._deadline is None else max(0.0, self._deadline - self.loop.time())

    # ---- the server end ----

    @property
    def opened(self) -> bool:
        """Whether the initial metadata has gone."""
        return self._opened.is_set()

    def open(self, metadata: Metadata = ()) -> None:
        """Sends the initial metadata, unless it has gone already."""
        if self._opened.is_set():
            return
        if size(metadata) > MAX_METADATA_BYTES:
            self.terminate(METADATA_TOO_LARGE)
            return
        self.initial_metadata = metadata
        self._opened.set()

    def finish(self, status: Status) -> None:
        """Ends the call from the server, behind the responses that wait."""
        if self.final is not None or self.status is not None:
            return
        # A lone surrogate, as in the name of a file that is no UTF-8, has no form on the wire.
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
        """Ends the call from the client, at once; returns whether it was still going on."""
        if self.status is not None:
            return False
        self.responses.close()
        self.requests.close()
        if self.handler is not None:
            self.handler.cancel()
        self._settle(status)
        return True

    async def receive(self) -> bytes | None:
        """Returns the next response, or None at the end, when the status is known.

        A wait that is cancelled cancels the call.
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
        """Waits for the initial metadata; a call that ends without any has empty ones."""
        await self._opened.wait()

    async def wait_settled(self) -> Status:
        """Waits for the status."""
        while self.status is None:
            await self._settled.wait()
        return self.status

    def on_settled(self, callback: Callable[[], object]) -> None:
        """Calls back when the status is known, now if it is."""
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
    """Tells a callback of the application that its subject is done; its failure is logged and harms nobody else."""
    try:
        callback(subject)
    except Exception as error:  # noqa: BLE001 it is the application's code, and the call must end whatever that does
        context = {"message": f"done callback {callback!r} of a call failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)


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
