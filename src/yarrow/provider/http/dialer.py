"""Opens a connection to a server and says in plain words why it could not."""

import asyncio
import errno
import os
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from yarrow.errors import Code, ProviderError
from yarrow.provider.http.abort import abort_transport
from yarrow.provider.http.connection import Connection
from yarrow.provider.http.proxy import Proxy, Route

if TYPE_CHECKING:
    import ssl

_Address = tuple[
    socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
]
_Protocol = TypeVar("_Protocol", bound=asyncio.Protocol)

MAX_ATTEMPT_SECONDS = 1.0
"""For each address of a name but the last: a dead IPv6 route must not use up the limit."""
REFUSED_RETRY_SECONDS = 0.3
"""After which a port of this machine that nobody listens on is tried again: mostly no server is about to start."""


class Dialer:
    """Opens connections to the server that a URL names, or to the proxy on the way to it."""

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
        """Connect to the first server on the way, with TLS if its URL says so."""
        loop = asyncio.get_running_loop()
        if route.first_hop.scheme == "http":
            return await loop.create_connection(protocol, sock=await _connect_socket(route))
        # Here and not above: an http:// path must not pay for loading the certificates' machinery.
        from yarrow.provider.http import tls

        with tls.translate_tls_errors(route.first_hop_name):
            context, sock = self._context(), await _connect_socket(route)
            return await loop.create_connection(protocol, sock=sock, ssl=context, server_hostname=route.first_hop.host)

    async def _open_tunnel(self, route: Route, proxy: Proxy) -> Connection:
        """Let the proxy open the way to the server, and set up TLS on it."""
        from yarrow.provider.http import tls
        from yarrow.provider.http.tunnel import TunnelHandshake

        transport, tunnel = await self._open(route, lambda: TunnelHandshake(route, proxy))
        try:
            if refusal := await tunnel.answer:
                raise refusal
            connection = Connection(str(route))
            connection.use_tunnel(transport)
            with tls.translate_tls_errors(str(route)):
                inner = await asyncio.get_running_loop().start_tls(
                    transport, connection, self._context(), server_hostname=route.origin.host
                )
                if inner is None:
                    raise ConnectionResetError
        except BaseException:  # also a cancellation: nobody else knows this transport
            abort_transport(transport)
            raise
        connection.connection_made(inner)
        return connection

    def _context(self) -> "ssl.SSLContext":
        from yarrow.provider.http import tls

        if self._tls is None:
            self._tls = tls.system_context()
        return self._tls


async def _connect_socket(route: Route) -> socket.socket:
    """Try the addresses of the first host one after the other; return a socket connected to the first that accepts."""
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
    except BaseException:  # also a cancellation: nobody else knows this socket
        sock.close()
        raise
    return sock


async def _resolve(route: Route) -> list[_Address]:
    """Return the addresses of the host, its families in turn, so that a dead one costs a single attempt."""
    host = route.first_hop.host
    # As bytes it is not looked at for letters of other scripts, for which the standard library loads tables first. A
    # label of more than 63 letters would pass unseen there.
    plain = host.isascii() and all(len(label) < 64 for label in host.split("."))
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host.encode() if plain else host, route.first_hop.port, type=socket.SOCK_STREAM
        )
    except (socket.gaierror, UnicodeError) as error:
        words = error.strerror if isinstance(error, OSError) else error
        raise _unreachable(route.first_hop_name, f"the name cannot be resolved ({words})") from None
    turns: defaultdict[int, Iterator[int]] = defaultdict(count)
    return sorted(found, key=lambda address: next(turns[address[0]]))


def _unreachable(server: str, cause: str) -> ProviderError:
    return ProviderError(Code.UNREACHABLE, f"cannot connect to {server}: {cause}", retryable=True)
