"""HTTP/1.1 connections: the exchanges on each, the pool of idle ones, and how they are opened, also by proxy."""

import asyncio
import errno
import os
import socket
import ssl
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TypeVar, cast

from yarrow.errors import Code, ProviderError
from yarrow.provider.http.exchange import Exchange, Timeouts, abort_transport
from yarrow.provider.http.parser import ResponseHead, ResponseParser
from yarrow.provider.http.proxy import Proxy, Route


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


_Address = tuple[
    socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
]
_Protocol = TypeVar("_Protocol", bound=asyncio.Protocol)

MAX_ATTEMPT_SECONDS = 1.0
"""Timeout in seconds for each address of a name but the last: a dead IPv6 route must not use up the limit."""
REFUSED_RETRY_SECONDS = 0.3
"""Seconds before retrying a local port that refused: usually no server is about to start."""


class Dialer:
    """Opens connections to the server in a URL, or to the proxy before it."""

    def __init__(self) -> None:
        self._tls: ssl.SSLContext | None = None

    async def dial(self, route: Route, limit: float) -> Connection:
        """Return a new connection within `limit` seconds.

        Raises UNREACHABLE; MALFORMED_RESPONSE for a proxy that does not speak HTTP.
        """
        try:
            async with asyncio.timeout(limit):
                if route.proxy is not None and route.is_tunnelled:
                    return await self._open_tunnel(route, route.proxy)
                return (await self._open(route, lambda: Connection(str(route))))[1]
        except TimeoutError:
            raise _unreachable(str(route), f"no connection within {limit:g} s") from None

    async def _open(self, route: Route, protocol: Callable[[], _Protocol]) -> tuple[asyncio.Transport, _Protocol]:
        """Connect to the first server on the route, with TLS if its URL requires it."""
        loop = asyncio.get_running_loop()
        if route.first_hop.scheme == "http":
            return await loop.create_connection(protocol, sock=await _connect_socket(route))
        with translate_tls_errors(route.first_hop_name):
            context, sock = self._context(), await _connect_socket(route)
            return await loop.create_connection(protocol, sock=sock, ssl=context, server_hostname=route.first_hop.host)

    async def _open_tunnel(self, route: Route, proxy: Proxy) -> Connection:
        """Let the proxy open a tunnel to the server, and set up TLS in it."""
        transport, tunnel = await self._open(route, lambda: TunnelHandshake(route, proxy))
        try:
            if refusal := await tunnel.answer:
                raise refusal
            connection = Connection(str(route))
            connection.use_tunnel(transport)
            with translate_tls_errors(str(route)):
                inner = await asyncio.get_running_loop().start_tls(
                    transport, connection, self._context(), server_hostname=route.origin.host
                )
                if inner is None:
                    raise ConnectionResetError
        except BaseException:  # also on cancellation: only this function holds the transport
            abort_transport(transport)
            raise
        connection.connection_made(inner)
        return connection

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = system_context()
        return self._tls


async def _connect_socket(route: Route) -> socket.socket:
    """Try the addresses of the first host in order; return a socket connected to the first that accepts."""
    addresses = await _resolve(route)
    causes: dict[str, None] = {}
    for number, address in enumerate(addresses, 1):
        try:
            return await _try_address(address, MAX_ATTEMPT_SECONDS if number < len(addresses) else None)
        except OSError as error:
            causes[os.strerror(error.errno).lower() if error.errno else "no answer"] = None
    error = _unreachable(route.first_hop_name, ", ".join(causes))
    if list(causes) == [os.strerror(errno.ECONNREFUSED).lower()] and all(map(_is_loopback, addresses)):
        error.retry_after = REFUSED_RETRY_SECONDS
    raise error


def _is_loopback(address: _Address) -> bool:
    host = str(address[4][0])
    return host == "::1" or host.startswith("127.")


async def _try_address(address: _Address, limit: float | None) -> socket.socket:
    family, kind, protocol, _, name = address
    sock = socket.socket(family, kind, protocol)
    try:
        sock.settimeout(0)
        async with asyncio.timeout(limit):
            await asyncio.get_running_loop().sock_connect(sock, name)
    except BaseException:  # also on cancellation: only this function holds the socket
        sock.close()
        raise
    return sock


async def _resolve(route: Route) -> list[_Address]:
    """Return the addresses of the host, alternating between families, so that a dead family costs one attempt."""
    host = route.first_hop.host
    # Bytes skip the IDNA encoding, for which the standard library first loads tables. Only that encoding rejects a
    # label of more than 63 characters, so a host with one stays a string.
    plain = host.isascii() and all(len(label) < 64 for label in host.split("."))
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host.encode() if plain else host, route.first_hop.port, type=socket.SOCK_STREAM
        )
    except (socket.gaierror, UnicodeError) as error:
        words = error.strerror if isinstance(error, OSError) else error
        raise _unreachable(route.first_hop_name, f"name resolution failed ({words})") from None
    turns: defaultdict[int, Iterator[int]] = defaultdict(count)
    return sorted(found, key=lambda address: next(turns[address[0]]))


def _unreachable(server: str, cause: str) -> ProviderError:
    return ProviderError(Code.UNREACHABLE, f"cannot connect to {server}: {cause}", retryable=True)


_NAME_MISMATCH = (62, 64)
"""OpenSSL's error numbers for a certificate issued to another name, and to another address."""


def system_context() -> ssl.SSLContext:
    """Return a context that trusts the system's authorities (or those in SSL_CERT_FILE and SSL_CERT_DIR)."""
    return ssl.create_default_context()


@contextmanager
def translate_tls_errors(server: str) -> Generator[None]:
    """Raise UNREACHABLE for a handshake with `server` that fails inside."""
    try:
        yield
    except ssl.SSLError as error:
        raise _handshake_error(server, error) from None
    except OSError as error:
        sentence = f"cannot connect to {server}: TLS setup failed ({error.strerror or 'connection closed'})"
        raise ProviderError(Code.UNREACHABLE, sentence, retryable=True) from None


def _handshake_error(server: str, error: ssl.SSLError) -> ProviderError:
    """Return the UNREACHABLE for a failed handshake; an untrusted certificate is not worth a retry."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return ProviderError(
            Code.UNREACHABLE,
            f"cannot verify the TLS certificate of {server}: {error.verify_message.rstrip('.')}. {_advice(error)}",
        )
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return ProviderError(
        Code.UNREACHABLE,
        f"the TLS handshake with {server} failed: {reason} (is it http instead of https?)",
        retryable=True,
    )


def _advice(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _NAME_MISMATCH:
        return "Use the name in the certificate in the URL"
    file = os.environ.get("SSL_CERT_FILE")
    if file and not os.access(file, os.R_OK):
        # Loading such a file reports no error, and then no authority is trusted at all.
        return f"SSL_CERT_FILE is {file!r}, which cannot be read: set it to a PEM file"
    return "Add its CA to the system's certificates, or set SSL_CERT_FILE to a PEM file with it"


MAX_REASON_CHARACTERS = 200
"""Maximum characters quoted in an error of a proxy's reason; the rest is truncated."""


class TunnelHandshake(asyncio.Protocol):
    """Handshake with a proxy; `answer` is done when the proxy has opened the tunnel or refused."""

    def __init__(self, route: Route, proxy: Proxy) -> None:
        self.answer: asyncio.Future[ProviderError | None] = asyncio.get_running_loop().create_future()
        """None if the tunnel to the server is open, so that TLS can be set up."""
        self._route = route
        self._proxy = proxy
        self._parser = ResponseParser(str(proxy))
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Request the tunnel."""
        self._transport = cast("asyncio.Transport", transport)
        server = self._route.origin
        lines = [f"CONNECT {server} HTTP/1.1", f"host: {server}"]
        if self._proxy.authorization:
            lines.append(f"proxy-authorization: {self._proxy.authorization}")
        self._transport.write("\r\n".join([*lines, "", ""]).encode())

    def data_received(self, data: bytes) -> None:
        """Read the head of the answer and nothing after it: the following bytes are not HTTP."""
        read = 0
        try:
            # Line by line, because httptools treats everything after this head as a body.
            for line in data.splitlines(keepends=True):
                self._parser.feed(line)
                read += len(line)
                if self._parser.head is not None:
                    self._check_head(self._parser.head, early=read < len(data))
                    return
        except ProviderError as error:
            self._set_answer(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Treat the loss as a refusal."""
        detail = "" if exc is None else f" ({exc})"
        sentence = f"{self._proxy} closed the connection before opening a tunnel to {self._route.origin}{detail}"
        self._set_answer(ProviderError(Code.UNREACHABLE, sentence, retryable=True))

    def _check_head(self, head: ResponseHead, *, early: bool) -> None:
        if not 200 <= head.status < 300:
            self._set_answer(make_proxy_error(self._route.origin.host, self._proxy, head))
        elif early:
            sentence = f"{self._proxy} sent unexpected bytes to {self._route.origin}; is it an HTTP proxy?"
            self._set_answer(ProviderError(Code.MALFORMED_RESPONSE, sentence))
        else:
            # Further bytes from the server belong to the TLS connection that is set up next.
            self._transport.pause_reading()
            self._set_answer(None)

    def _set_answer(self, outcome: ProviderError | None) -> None:
        if not self.answer.done():
            self.answer.set_result(outcome)


def make_proxy_error(host: str, proxy: Proxy, head: ResponseHead) -> ProviderError:
    """Return the UNREACHABLE for a proxy that answered in place of the server `host`."""
    said = f"{head.status} {_quoted(head.reason)}".rstrip()
    if head.status == 407:
        return ProviderError(
            Code.UNREACHABLE, _describe_authentication(proxy, said, head.headers.get("proxy-authenticate", ""))
        )
    without = f"or add {host} to NO_PROXY"
    if head.status in (408, 429) or head.status >= 500:
        sentence = f"{proxy} could not reach {host} ({said}): try again later, {without}"
        return ProviderError(Code.UNREACHABLE, sentence, retryable=True)
    sentence = f"{proxy} denied access to {host} ({said}): ask its administrator to allow it, {without}"
    return ProviderError(Code.UNREACHABLE, sentence)


def _describe_authentication(proxy: Proxy, said: str, challenge: str) -> str:
    """Return the sentence for a proxy that requires authentication."""
    if challenge and "basic" not in challenge.lower():
        return f"{proxy} requires {_quoted(challenge)} ({said}); Yarrow supports only Basic: use another proxy"
    if proxy.authorization:
        return f"{proxy} rejected the user name and password in {proxy.variable} ({said}): correct them"
    place = f"{proxy.origin.scheme}://USER:PASSWORD@{proxy.origin}"
    return f"{proxy} requires a user name and a password ({said}): set {proxy.variable} to {place}"


def _quoted(text: str) -> str:
    return ascii(text[:MAX_REASON_CHARACTERS])[1:-1]
