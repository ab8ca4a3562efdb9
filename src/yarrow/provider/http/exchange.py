"""One request and its response: what has arrived, who waits for it and how long the server may be silent."""

import asyncio
from enum import Enum

from yarrow.errors import Code, ProviderError
from yarrow.provider.http.abort import abort
from yarrow.provider.http.parser import Head, ResponseParser
from yarrow.provider.http.request import Timeouts
from yarrow.provider.http.watch import Watch

HIGH_WATER = 256 * 1024
"""Bytes that may wait for a reader; beyond, the socket is not read until the reader has taken them."""


class _Stage(Enum):
    WRITING = "took nothing more of the request for {limit:g} s"
    WAITING = "sent no answer for {limit:g} s; firstByteTimeout sets that limit"
    READING = "was silent for {limit:g} s in the middle of its answer; idleTimeout sets that limit"


class Exchange:
    """The state of one exchange; the connection reports to it, one task reads from it.

    After a failure what had arrived is still handed out, then the failure is raised.
    """

    def __init__(self, peer: str, transport: asyncio.Transport, timeouts: Timeouts) -> None:
        self.lost_unheard = False
        """The connection died before a single byte of a response: the request may go over another one."""
        self._peer = peer
        self._transport = transport
        self._parser = ResponseParser(peer)
        self._limits = {
            _Stage.WRITING: timeouts.write,
            _Stage.WAITING: timeouts.first_byte,
            _Stage.READING: timeouts.idle,
        }
        self._watch = Watch(expired=self._stalled, excused=self._excused)
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._failure: ProviderError | None = None
        self._heard = False
        self._paused = False
        self._unread = 0
        self._unsent = transport.get_write_buffer_size()
        self._enter(_Stage.WRITING)

    @property
    def over(self) -> bool:
        """Whether nothing more of this response can arrive."""
        return self._parser.complete or self._failure is not None

    @property
    def reusable(self) -> bool:
        """Whether the response was whole, read to its end, and leaves the connection ready for another."""
        parser = self._parser
        return parser.complete and parser.keep_alive and not parser.pieces and self._failure is None

    async def head(self) -> Head:
        """Wait for the head of the response."""
        while self._parser.head is None:
            await self._arrival()
        return self._parser.head

    async def receive(self) -> bytes:
        """Wait for more of the body; b"" is its end."""
        while not (pieces := self._parser.pieces):
            if self._parser.complete:
                return b""
            await self._arrival()
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._unread = 0
        if self._paused:
            self._paused = False
            self._watch.alive()
            self._transport.resume_reading()
        return body

    def sent(self) -> None:
        """Note that the whole request has left."""
        if self._stage is _Stage.WRITING:
            self._enter(_Stage.WAITING)

    def received(self, data: bytes) -> None:
        """Take what one read of the socket brought."""
        self._heard = True
        self._watch.alive()
        parser = self._parser
        try:
            parser.feed(data)
        except ProviderError as error:
            self.fail(error)
            return
        if parser.complete:
            self._watch.stop()
        elif parser.began is not (self._stage is _Stage.READING):
            self._enter(_Stage.READING if parser.began else _Stage.WAITING)
        self._unread += len(data)
        if self._unread > HIGH_WATER and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def ended(self, cause: Exception | None) -> None:
        """Take the end of the connection; `cause` is None when the server closed it properly."""
        if not self.over:
            self._failure = self._parser.end(cause)
            self.lost_unheard = self._failure is not None and not self._heard
        self._watch.stop()
        self._wake()

    def fail(self, error: ProviderError) -> None:
        """End the exchange with an error of ours and close the connection."""
        if not self.over:
            self._failure = error
        self._watch.stop()
        self._wake()
        abort(self._transport)

    def _enter(self, stage: _Stage) -> None:
        self._stage = stage
        self._watch.start(self._limits[stage])

    async def _arrival(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _excused(self) -> bool:
        if self._stage is not _Stage.WRITING:
            return self._paused
        unsent, self._unsent = self._unsent, self._transport.get_write_buffer_size()
        return self._unsent < unsent

    def _stalled(self) -> None:
        sentence = self._stage.value.format(limit=self._limits[self._stage])
        self.fail(ProviderError(Code.STREAM_STALLED, f"{self._peer} {sentence}", retryable=True))
