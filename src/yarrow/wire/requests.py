"""The client end of a call with a stream of requests, which come from an iterable or through `write`."""

import asyncio
import logging
from collections.abc import AsyncIterable, Callable, Iterable
from typing import Generic, TypeVar

from grpc import aio

from yarrow.wire.calls import STYLES_MIXED, OneResponse, drop
from yarrow.wire.rpc import CANCELLED, Rpc, too_large

Q = TypeVar("Q")
R = TypeVar("R")

_LOG = logging.getLogger(__name__)


class Writer(Generic[Q]):
    """Writes the requests of one call."""

    def __init__(self, rpc: Rpc, serialize: Callable[[Q], bytes], max_message_bytes: int) -> None:
        self._rpc = rpc
        self._serialize = serialize
        self._max_message_bytes = max_message_bytes
        self.ended = False

    async def write(self, request: Q) -> None:
        """Sends a request; waits while `REQUESTS_WAITING` of them are unread. InvalidStateError after the end."""
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
        """Says that no request follows."""
        self.ended = True
        self._rpc.requests.end()

    async def feed(self, requests: AsyncIterable[Q] | Iterable[Q]) -> None:
        """Sends all of them; an iterable that raises cancels the call, since the rest will never come."""
        try:
            if isinstance(requests, AsyncIterable):
                async for request in requests:
                    await self.write(request)
            else:
                for request in requests:
                    await self.write(request)
            self.end()
        except Exception:  # noqa: BLE001 the iterable is the application's; its failure is the call's
            _LOG.debug("the requests of %s ended early", self._rpc.method, exc_info=True)
            self._rpc.terminate(CANCELLED)


class StreamUnaryCall(OneResponse[R], aio.StreamUnaryCall[Q, R], Generic[Q, R]):
    """Many requests, one response. A call that is dropped while only its holder could write on is cancelled."""

    def __init__(self, rpc: Rpc, parse: Callable[[bytes], R], writer: Writer[Q], *, fed: bool) -> None:
        super().__init__(rpc, parse)
        self._writer = writer
        self._fed = fed

    def __del__(self) -> None:
        if not self._fed and not self._writer.ended:
            drop(self._rpc)

    async def write(self, request: Q) -> None:
        """Sends a request; raises InvalidStateError after the end, AioRpcError if this request ended the call."""
        self._refuse_fed()
        try:
            await self._writer.write(request)
        except asyncio.CancelledError:
            self.cancel()
            raise
        self._raise_failure()

    async def done_writing(self) -> None:
        """Says that no request follows; may be said again."""
        self._refuse_fed()
        self._writer.end()

    def _refuse_fed(self) -> None:
        if self._fed:
            raise aio.UsageError(STYLES_MIXED)
