"""HTTP connections: one open connection, and the pool of idle ones."""

import asyncio
from typing import cast

from yarrow.errors import Code, ProviderError
from yarrow.provider.http.exchange import Exchange, abort_transport
from yarrow.provider.http.request import Timeouts


class Connection(asyncio.Protocol):
    """The protocol of one connection to `peer` ("host:port"); `closed` is done when the socket is."""

    def __init__(self, peer: str) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._peer = peer
        self._transport: asyncio.Transport
        self._exchange: Exchange | None = None
        self._is_write_paused = False

    @property
    def is_usable(self) -> bool:
        """Whether another request may be sent: the last exchange is done with and the server has not hung up."""
        if self._transport.is_closing() or self._is_write_paused:
            return False
        return self._exchange is None or self._exchange.is_reusable

    def start(self, request: bytes, timeouts: Timeouts) -> Exchange:
        """Send a request; only on a usable connection, or one that was lost before anybody could know."""
        self._transport.write(request)
        exchange = self._exchange = Exchange(self._peer, self._transport, timeouts)
        if self._transport.is_closing():
            exchange.on_ended(None)
        elif not self._is_write_paused:
            exchange.on_sent()
        return exchange

    def abort(self) -> None:
        """Close at once, whatever is under way."""
        if self._exchange is not None:
            self._exchange.fail(
                ProviderError(Code.UNREACHABLE, f"the HTTP client closed its connection to {self._peer}")
            )
        abort_transport(self._transport)

    def use_tunnel(self, tunnel: asyncio.Transport) -> None:
        """Take the tunnel in which TLS is being set up, so that what the server does too early ends it."""
        self._transport = tunnel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)
        # Zero left is what "sent" means; TLS transports take a high mark of 0 for always full.
        self._transport.set_write_buffer_limits(high=1, low=0)

    def data_received(self, data: bytes) -> None:
        """Pass on what a read brought; bytes that nobody asked for end the connection."""
        if self._exchange is None or self._exchange.is_over:
            self.abort()
        else:
            self._exchange.on_received(data)

    def eof_received(self) -> None:
        """Take the server's end for the end of the connection, without waiting for what is still to be sent."""
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the loss."""
        self._end(exc)
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        """Note that some of the request waits to be sent."""
        self._is_write_paused = True

    def resume_writing(self) -> None:
        """Note that all of it has left."""
        self._is_write_paused = False
        if self._exchange is not None:
            self._exchange.on_sent()

    def _end(self, cause: Exception | None) -> None:
        if self._exchange is not None:
            self._exchange.on_ended(cause)


MAX_CONNECTIONS = 32
"""Connections to one server; further requests wait their turn."""
MAX_IDLE_SECONDS = 30.0
"""Age at which an idle connection is not used again: a router in between may have forgotten it in silence."""


class ConnectionPool:
    """At most MAX_CONNECTIONS connections to one server; whoever holds one of `slots` may take or open one."""

    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(MAX_CONNECTIONS)
        self._idle: list[tuple[float, Connection]] = []

    def acquire(self) -> Connection | None:
        """Return the connection that was used last, or None when a new one has to be opened."""
        oldest = asyncio.get_running_loop().time() - MAX_IDLE_SECONDS
        while self._idle:
            since, connection = self._idle.pop()
            if connection.is_usable and since >= oldest:
                return connection
            connection.abort()
        return None

    def release(self, connection: Connection) -> None:
        """Keep a connection for the next request, or close it if it cannot carry one."""
        if connection.is_usable:
            self._idle.append((asyncio.get_running_loop().time(), connection))
        else:
            connection.abort()

    def drop_idle(self) -> None:
        """Close all idle connections: where the newest was dead, the older ones are."""
        while self._idle:
            self._idle.pop()[1].abort()
