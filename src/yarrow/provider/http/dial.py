"""Opens a connection to a server and says in plain words why it could not."""

import asyncio
import os
import socket
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

from yarrow.errors import Code, ProviderError
from yarrow.provider.http.connection import Connection
from yarrow.provider.http.request import Origin

if TYPE_CHECKING:
    import ssl

_Address = tuple[
    socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
]

ATTEMPT_SECONDS = 1.0
"""For each address of a name but the last: a dead IPv6 route must not use up the limit."""


class Dialer:
    """Opens connections straight to the server that a URL names."""

    def __init__(self) -> None:
        self._tls: ssl.SSLContext | None = None

    async def dial(self, origin: Origin, limit: float) -> Connection:
        """Return a new connection within `limit` seconds; raises UNREACHABLE."""
        try:
            async with asyncio.timeout(limit):
                if origin.scheme == "https":
                    return await self._dial_tls(origin)
                return await _attach(origin, await _connect(origin))
        except TimeoutError:
            raise _unreachable(origin, f"no connection within {limit:g} s") from None

    async def _dial_tls(self, origin: Origin) -> Connection:
        # Here and not above: an http:// path must not pay for loading the certificates' machinery.
        import ssl

        from yarrow.provider.http import tls

        try:
            if self._tls is None:
                self._tls = tls.system_context()
            return await _attach(origin, await _connect(origin), self._tls)
        except ssl.SSLError as error:
            raise tls.handshake_error(origin, error) from None
        except OSError as error:
            cause = error.strerror or "the server hung up"
            raise _unreachable(origin, f"TLS could not be set up ({cause})") from None


async def _attach(origin: Origin, sock: socket.socket, context: "ssl.SSLContext | None" = None) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: Connection(str(origin)), sock=sock, ssl=context, server_hostname=origin.host if context else None
    )
    return connection


async def _connect(origin: Origin) -> socket.socket:
    """Try the addresses of the host one after the other; return a socket connected to the first that accepts."""
    addresses = await _resolve(origin)
    causes: dict[str, None] = {}
    for number, address in enumerate(addresses, 1):
        try:
            return await _knock(address, ATTEMPT_SECONDS if number < len(addresses) else None)
        except OSError as error:
            causes[os.strerror(error.errno).lower() if error.errno else "no answer"] = None
    raise _unreachable(origin, ", ".join(causes))


async def _knock(address: _Address, limit: float | None) -> socket.socket:
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


async def _resolve(origin: Origin) -> list[_Address]:
    """Return the addresses of the host, its families in turn, so that a dead one costs a single attempt."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        words = error.strerror if isinstance(error, OSError) else error
        raise _unreachable(origin, f"the name cannot be resolved ({words})") from None
    turns: defaultdict[int, Iterator[int]] = defaultdict(count)
    return sorted(found, key=lambda address: next(turns[address[0]]))


def _unreachable(origin: Origin, cause: str) -> ProviderError:
    return ProviderError(Code.UNREACHABLE, f"cannot connect to {origin}: {cause}", retryable=True)
