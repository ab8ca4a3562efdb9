"""Client side of a call, with one request or a stream of requests."""

import asyncio
import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Generator, Iterable
from functools import partial
from typing import Any, Generic, TypeVar

import grpc
from grpc import aio

from yarrow.wire.rpc_call_state import CANCELLED, Rpc, Status, notify, too_large

Q = TypeVar("Q")
R = TypeVar("R")

DROPPED = Status(grpc.StatusCode.CANCELLED, "Cancelled upon garbage collection!")
STYLES_MIXED = "The iterator and read/write APIs may not be mixed on a single RPC."


class ClientEnd:
    """Common part of all kinds of call: state, metadata and status."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    def cancel(self) -> bool:
        """Cancel the call and its handler; return whether it was still running."""
        return self._rpc.terminate(CANCELLED)

    def cancelled(self) -> bool:
        """Return whether the call ended with CANCELLED, from either side."""
        return self._rpc.status is not None and self._rpc.status.code is grpc.StatusCode.CANCELLED

    def done(self) -> bool:
        """Return whether the status is known; a stream's comes after its last message."""
        return self._rpc.status is not None

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline, at least 0; None without one."""
        return self._rpc.time_remaining()

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call back with this call when it is done; until then the callback keeps the call alive."""
        self._rpc.on_settled(partial(notify, callback, self))

    async def initial_metadata(self) -> aio.Metadata:
        """Wait for the server's initial metadata."""
        await self._rpc.wait_opened()
        return aio.Metadata(*self._rpc.initial_metadata)

    async def trailing_metadata(self) -> aio.Metadata:
        """Wait for the metadata that the server sends with the status."""
        return aio.Metadata(*(await self._rpc.wait_settled()).trailing_metadata)

    async def code(self) -> grpc.StatusCode:
        """Wait for the status code."""
        return (await self._rpc.wait_settled()).code

    async def details(self) -> str:
        """Wait for the details of the status."""
        return (await self._rpc.wait_settled()).details

    async def wait_for_connection(self) -> None:
        """Wait for the initial metadata; raises AioRpcError if the call has failed."""
        await self._rpc.wait_opened()
        self._raise_failure()

    def _raise_failure(self) -> None:
        """Raise the error of a call that ended with another status than OK."""
        status = self._rpc.status
        if status is None or status.code is grpc.StatusCode.OK:
            return
        if status is CANCELLED or status is DROPPED:
            raise asyncio.CancelledError
        initial, trailing = aio.Metadata(*self._rpc.initial_metadata), aio.Metadata(*status.trailing_metadata)
        summary = f"{status.code.name}:{status.details}"
        raise aio.AioRpcError(status.code, initial, trailing, status.details, summary)


class OneResponse(ClientEnd, Generic[R]):
    """A call whose one response can be awaited once or repeatedly."""

    def __init__(self, rpc: Rpc, parse: Callable[[bytes], R]) -> None:
        super().__init__(rpc)
        self._parse = parse
        self._response: R | None = None

    def __await__(self) -> Generator[Any, None, R]:
        return self._wait().__await__()

    async def wait_for_connection(self) -> None:
        """Wait for the whole call; raises AioRpcError if it failed."""
        await self._rpc.wait_settled()
        self._raise_failure()

    async def _wait(self) -> R:
        try:
            await self._rpc.wait_settled()
        except asyncio.CancelledError:
            self.cancel()
            raise
        self._raise_failure()
        if self._response is None:
            self._response = self._parse(self._rpc.response)
        return self._response


class UnaryUnaryCall(OneResponse[R], aio.UnaryUnaryCall[Q, R], Generic[Q, R]):
    """One request, one response. A call that is dropped unawaited runs to its end, as over a connection."""


class UnaryStreamCall(ClientEnd, aio.UnaryStreamCall[Q, R]):
    """One request, many responses. A call that is dropped before its end is cancelled."""

    def __init__(self, rpc: Rpc, parse: Callable[[bytes], R]) -> None:
        super().__init__(rpc)
        self._parse = parse
        self._iterated: bool | None = None
        self._end_told = False

    def __del__(self) -> None:
        drop(self._rpc)

    def __aiter__(self) -> AsyncIterator[R]:
        """Iterate over the remaining responses; raises AioRpcError at the end if the call failed."""
        self._use(iterated=True)
        return _Responses(self._next)

    async def read(self) -> R | object:
        """Return the next response, or `grpc.aio.EOF` at the end; raises AioRpcError if the call failed."""
        if not self.done():
            self._use(iterated=False)
            data = await self._rpc.receive()
            if data is not None:
                return self._parse(data)
        self._raise_failure()
        return aio.EOF

    async def _next(self) -> R:
        """Return the next response for an iterator; a failure is raised once, afterwards the iteration just ends."""
        data = await self._rpc.receive()
        if data is not None:
            return self._parse(data)
        if not self._end_told:
            self._end_told = True
            self._raise_failure()
        raise StopAsyncIteration

    def _use(self, *, iterated: bool) -> None:
        if self._iterated not in {None, iterated}:
            raise aio.UsageError(STYLES_MIXED)
        self._iterated = iterated


class _Responses(AsyncIterator[R]):
    """Iterator over a call. It is a separate object because `anext(call)` fails over a connection too."""

    def __init__(self, following: Callable[[], Coroutine[Any, Any, R]]) -> None:
        self._following = following

    def __anext__(self) -> Coroutine[Any, Any, R]:
        return self._following()


def drop(rpc: Rpc) -> None:
    """Cancel the call of a dropped object, through its loop, because any thread may run the garbage collection."""
    if rpc.status is None and not rpc.loop.is_closed():
        rpc.loop.call_soon_threadsafe(rpc.terminate, DROPPED)


_LOG = logging.getLogger(__name__)


class Writer(Generic[Q]):
    """Writer for the requests of one call."""

    def __init__(self, rpc: Rpc, serialize: Callable[[Q], bytes], max_message_bytes: int) -> None:
        self._rpc = rpc
        self._serialize = serialize
        self._max_message_bytes = max_message_bytes
        self.ended = False

    async def write(self, request: Q) -> None:
        """Send a request; waits while `REQUESTS_WAITING` of them are unread. InvalidStateError after the end."""
        if self._rpc.status is not None:
            raise asyncio.InvalidStateError("RPC already finished.")
        if self.ended:
            raise asyncio.InvalidStateError('RPC is half closed after calling "done_writing".')
        data = self._serialize(request)
        if len(data) > self._max_message_bytes:
            self._rpc.terminate(too_large("CLIENT", len(data), self._max_message_bytes))
        else:
            await self._rpc.requests.write(data)

    def end(self) -> None:
        """Signal that no request follows."""
        self.ended = True
        self._rpc.requests.end()

    async def feed(self, requests: AsyncIterable[Q] | Iterable[Q]) -> None:
        """Send all of them; an iterable that raises cancels the call, since the rest will never arrive."""
        try:
            if isinstance(requests, AsyncIterable):
                async for request in requests:
                    await self.write(request)
            else:
                for request in requests:
                    await self.write(request)
            self.end()
        except Exception:  # noqa: BLE001 the iterable is the application's; its failure is the call's
            _LOG.debug("the request stream of %s ended early", self._rpc.method, exc_info=True)
            self._rpc.terminate(CANCELLED)


class StreamUnaryCall(OneResponse[R], aio.StreamUnaryCall[Q, R], Generic[Q, R]):
    """Many requests, one response. A call that is dropped while only its holder could write to it is cancelled."""

    def __init__(self, rpc: Rpc, parse: Callable[[bytes], R], writer: Writer[Q], *, fed: bool) -> None:
        super().__init__(rpc, parse)
        self._writer = writer
        self._fed = fed

    def __del__(self) -> None:
        if not self._fed and not self._writer.ended:
            drop(self._rpc)

    async def write(self, request: Q) -> None:
        """Send a request; raises InvalidStateError after the end, AioRpcError if this request ended the call."""
        self._refuse_fed()
        try:
            await self._writer.write(request)
        except asyncio.CancelledError:
            self.cancel()
            raise
        self._raise_failure()

    async def done_writing(self) -> None:
        """Signal that no request follows; may be repeated."""
        self._refuse_fed()
        self._writer.end()

    def _refuse_fed(self) -> None:
        if self._fed:
            raise aio.UsageError(STYLES_MIXED)
