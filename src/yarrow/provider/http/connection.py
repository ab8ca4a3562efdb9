"""HTTP connections: one open connection, and the pool of idle ones."""

import asyncio
from typing import cast

from yarrow.errors import Code, ProviderError
from yarrow.provider.http.exchange import Exchange, abort_transport
from yarrow.provider.http.request import Timeouts


class Connection(asyncio.Protocol):
    """Protocol of one connection to `peer` ("host:port"); `closed` is done once the socket is closed."""

    def __init__(self, peer: str) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._peer = peer
        self._transport: asyncio.Transport
        self._exchange: Exchange | None = None
        self._is_write_paused = False

    @property
    def is_usable(self) -> bool:
        """Another request may be sent: the last exchange is finished and the server has not hung up."""
        if self._transport.is_closing() or self._is_write_paused:
            return False
        return self._exchange is None or self._exchange.is_reusable

    def start(self, request: bytes, timeouts: Timeouts) -> Exchange:
        """Send a request; call only on a usable connection, or one whose loss could not be known yet."""
        self._transport.write(request)
        exchange = self._exchange = Exchange(self._peer, self._transport, timeouts)
        if self._transport.is_closing():
            exchange.on_ended(None)
        elif not self._is_write_paused:
            exchange.on_sent()
        return exchange

    def abort(self) -> None:
        """Close immediately, even during an exchange."""
        if self._exchange is not None:
            self._exchange.fail(
                ProviderError(Code.UNREACHABLE, f"the HTTP client closed its connection to {self._peer}")
            )
        abort_transport(self._transport)

    def use_tunnel(self, tunnel: asyncio.Transport) -> None:
        """Use the tunnel in which TLS is being set up, so that premature bytes from the server end it."""
        self._transport = tunnel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)
        # An empty buffer means "sent"; TLS transports treat a high mark of 0 as always full.
        self._transport.set_write_buffer_limits(high=1, low=0)

    def data_received(self, data: bytes) -> None:
        """Pass received bytes on; unsolicited bytes end the connection."""
        if self._exchange is None or self._exchange.is_over:
            self.abort()
        else:
            self._exchange.on_received(data)

    def eof_received(self) -> None:
        """Treat the server's EOF as the end of the connection, without waiting for unsent bytes."""
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the loss."""
        self._end(exc)
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        """Note that part of the request is still unsent."""
        self._is_write_paused = True

    def resume_writing(self) -> None:
        """Note that the whole request has been sent."""
        self._is_write_paused = False
        if self._exchange is not None:
            self._exchange.on_sent()

    def _end(self, cause: Exception | None) -> None:
        if self._exchange is not None:
            self._exchange.on_ended(cause)


MAX_CONNECTIONS = 32
"""Maximum connections to one server; further requests wait."""
MAX_IDLE_SECONDS = 30.0
"""Maximum age in seconds of a reused idle connection: a router in between may silently have dropped it."""


class ConnectionPool:
    """At most MAX_CONNECTIONS connections to one server; hold one of `slots` to take or open one."""

    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(MAX_CONNECTIONS)
        self._idle: list[tuple[float, Connection]] = []

    def acquire(self) -> Connection | None:
        """Return the most recently used connection, or None if a new one must be opened."""
        oldest = asyncio.get_running_loop().time() - MAX_IDLE_SECONDS
        while self._idle:
            since, connection = self._idle.pop()
            if connection.is_usable and since >= oldest:
                return connection
            connection.abort()
        return None

    def release(self, connection: Connection) -> None:
        """Keep a connection for the next request, or close it if it is unusable."""
        if connection.is_usable:
            self._idle.append((asyncio.get_running_loop().time(), connection))
        else:
            connection.abort()

    def drop_idle(self) -> None:
        """Close all idle connections: if the newest is dead, so are the older ones."""
        while self._idle:
            self._idle.pop()[1].abort()
