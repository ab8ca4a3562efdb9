"""HTTP/1.1 client that streams the response as it arrives."""

from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from yarrow.errors import Code, ProviderError
from yarrow.provider.http.connection import Connection, ConnectionPool, Dialer, make_proxy_error
from yarrow.provider.http.exchange import Exchange, HttpRequest, Timeouts, encode_http_request
from yarrow.provider.http.parser import ResponseHead
from yarrow.provider.http.proxy import ProxySettings, Route

__all__ = ["MAX_ERROR_BODY_BYTES", "HttpClient", "HttpRequest", "HttpResponse", "Timeouts"]

MAX_ERROR_BODY_BYTES = 1024 * 1024
"""Default maximum bytes that `HttpResponse.read` returns; the rest of the body is not read."""


class HttpResponse:
    """The response to a request, valid inside its `async with` and read by one task.

    Iterating yields the body as it arrives, about one non-empty piece per read of the socket. Both ways of reading
    raise ProviderError: STREAM_TRUNCATED, STREAM_STALLED, MALFORMED_RESPONSE.
    """

    def __init__(self, head: ResponseHead, receive: Callable[[], Awaitable[bytes]]) -> None:
        self.status: int = head.status
        self.reason: str = head.reason
        self.headers: Mapping[str, str] = head.headers
        """Headers by lower-case name; values of a repeated one are joined with ", "."""
        self._receive = receive

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece of the body."""
        if piece := await self._receive():
            return piece
        raise StopAsyncIteration

    async def read(self, limit: int = MAX_ERROR_BODY_BYTES) -> bytes:
        """Return the rest of the body, or its first `limit` bytes if it is longer."""
        body = bytearray()
        while len(body) < limit and (piece := await self._receive()):
            body += piece
        return bytes(body[:limit])


class HttpClient:
    """HTTP client with keep-alive connections per route; belongs to one event loop, serves many tasks.

    `environment` names the proxies (see `ProxySettings`); without it every server is contacted directly.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._proxies = ProxySettings(environment or {})
        self._dialer = Dialer()
        self._pools: defaultdict[Route, ConnectionPool] = defaultdict(ConnectionPool)
        self._open: set[Connection] = set()
        self._closed = False

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncGenerator[HttpResponse]:
        """Send a request and yield its response, whatever its status; redirects are not followed.

        Leaving before the end of the body closes the connection. If all connections to the server are busy, wait for
        one without a limit. Raises ProviderError: INVALID_REQUEST, PROVIDER_SETUP, UNREACHABLE, STREAM_STALLED,
        MALFORMED_RESPONSE.
        """
        route, data = encode_http_request(request, self._proxies)
        pool = self._pools[route]
        async with pool.slots:
            connection, exchange = await self._exchange(route, data, request.timeouts)
            try:
                yield _make_response(route, await exchange.read_head(), exchange)
            finally:
                pool.release(connection)

    async def close(self) -> None:
        """Close every connection, including those in use, and wait until their sockets are closed."""
        self._closed = True
        connections = list(self._open)
        for connection in connections:
            connection.abort()
        for connection in connections:
            await connection.closed

    async def _exchange(self, route: Route, data: bytes, timeouts: Timeouts) -> tuple[Connection, Exchange]:
        """Send over an idle connection or a new one, and wait for the head of the response."""
        pool = self._pools[route]
        idle = pool.acquire()
        if idle is not None:
            exchange = idle.start(data, timeouts)
            try:
                await _wait_for_head(idle, exchange)
            except ProviderError:
                # The server may have closed it just as we wrote; then it did nothing, or can safely do it again.
                if not exchange.lost_before_response:
                    raise
                pool.drop_idle()
            else:
                return idle, exchange
        fresh = await self._connect(route, timeouts.connect)
        exchange = fresh.start(data, timeouts)
        await _wait_for_head(fresh, exchange)
        return fresh, exchange

    async def _connect(self, route: Route, limit: float) -> Connection:
        if not self._closed:
            connection = await self._dialer.dial(route, limit)
            self._open.add(connection)
            connection.closed.add_done_callback(lambda _: self._open.discard(connection))
            if not self._closed:
                return connection
            connection.abort()
        raise ProviderError(Code.UNREACHABLE, f"cannot send to {route}: the HTTP client is closed")


def _make_response(route: Route, head: ResponseHead, exchange: Exchange) -> HttpResponse:
    if head.status == 407 and route.proxy is not None and not route.is_tunnelled:
        raise make_proxy_error(route.origin.host, route.proxy, head)
    encoding = head.headers.get("content-encoding", "identity")
    if encoding.lower() in ("", "identity"):
        return HttpResponse(head, exchange.receive)
    # Imported lazily: we request no compression, so it is rarely needed.
    from yarrow.provider.http.content_encoding import ContentDecoder

    return HttpResponse(head, ContentDecoder(str(route), encoding, exchange.receive).receive)


async def _wait_for_head(connection: Connection, exchange: Exchange) -> None:
    try:
        await exchange.read_head()
    except BaseException:  # also on cancellation: a half-read connection cannot be reused
        connection.abort()
        raise
