"""Authentication of clients by token, and the log of refused connections."""

import asyncio
import hashlib
import hmac
import logging
import os
import secrets
import stat
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import grpc

from yarrow.errors import UsageError
from yarrow.platform import system
from yarrow.service.rpc_middleware import abort_unauthenticated

LOG_SECONDS = 60.0
"""Minimum seconds between two log lines about refused calls of one peer, and between two about full connections."""
CHECK_SECONDS = 5.0
"""Seconds between two checks of the number of open connections."""
MAX_PEERS = 1_024
"""Maximum peers whose last log line is remembered; beyond it all are forgotten."""
MAX_NAMED_PEERS = 3
"""Maximum peers named when no more connections are accepted: those with the most."""

_logger = logging.getLogger("yarrow.service")


class RefusalLog:
    """Refusals of one service since it started; `now` is a clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.calls = 0
        """Calls without the service's token."""
        self.full_seconds = 0
        """Seconds in which no more connections were accepted, in steps of `CHECK_SECONDS`."""
        self._now = now
        self._logged: dict[str, float] = {}
        self._unlogged: Counter[str] = Counter()

    def record_call(self, method: str, peer: str) -> None:
        """Count a call refused for its token, and log it unless the peer was logged within the last minute."""
        self.calls += 1
        host = parse_peer_host(peer)
        if not self._is_due(host):
            self._unlogged[host] += 1
            return
        more = self._unlogged.pop(host, 0)
        also = f" ({more:,} more calls since the last line)" if more else ""
        _logger.warning("%s from %s refused: UNAUTHENTICATED%s", method.rpartition("/")[2], host, also)

    def check_connections(self, port: int, limit: int) -> None:
        """Count and log, with the peers, the time in which a local port has reached its connection limit."""
        peers = Counter(system.list_connected_addresses(port))
        if peers.total() < limit:
            return
        self.full_seconds += int(CHECK_SECONDS)
        if self._is_due(""):
            named = ", ".join(f"{peer} ({count:,})" for peer, count in peers.most_common(MAX_NAMED_PEERS))
            _logger.warning("the limit of %s connections (service.connections) is reached: %s", f"{limit:,}", named)

    async def watch_connections(self, port: int, limit: int) -> None:
        """Check every `CHECK_SECONDS` until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            with suppress(OSError):
                await asyncio.to_thread(self.check_connections, port, limit)

    def _is_due(self, peer: str) -> bool:
        now = self._now()
        if now - self._logged.get(peer, -LOG_SECONDS) < LOG_SECONDS:
            return False
        if len(self._logged) >= MAX_PEERS:
            self._logged.clear()
            self._unlogged.clear()
        self._logged[peer] = now
        return True


def parse_peer_host(peer: str) -> str:
    """Return the address in gRPC's name of a peer, such as `ipv4:192.0.2.1:50000`, without its port."""
    kind, _, rest = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return "a local socket" if kind == "unix" else "an unknown peer"
    return rest.rpartition(":")[0].strip("[]")


TOKEN_BYTES = 32
"""Bytes of randomness in a token."""
MAX_TOKEN_FILE_BYTES = 4096
"""Maximum bytes read of a token file."""
HEALTH_PREFIX = "/grpc.health.v1.Health/"
"""Prefix of the methods that need no token."""
_MISSING_CREDENTIAL = (
    "this service requires its token: send it as `authorization: Bearer TOKEN`; "
    "it is in the .token file next to the service's socket"
)
_WRONG_CREDENTIAL = "wrong token for this service: read the .token file next to its socket again"
_WEB_PAGE = "this service rejects calls from web pages (requests with an `origin` header)"

if TYPE_CHECKING:
    # Generic only for type checkers.
    Handler = grpc.RpcMethodHandler[Any, Any]


def token_path_for(socket: Path) -> Path:
    """Return the path of the token for the service at `socket`."""
    return socket.with_name(f"{socket.name}.token")


def read_token(path: Path) -> str:
    """Return the token in a file. Raises `UsageError` if it is unreadable, or readable by other users."""
    try:
        descriptor = os.open(path, os.O_RDONLY | system.BASE_FLAGS | system.NOFOLLOW | system.NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not (stat.S_ISREG(found.st_mode) and system.is_owned(found) and system.is_private_mode(found.st_mode)):
                raise UsageError(
                    f"{path} must be a file that you own and others cannot read, because its token lets them run "
                    f"commands as you: chmod 600 {path}"
                )
            token = file.read(MAX_TOKEN_FILE_BYTES).strip()
    except OSError as error:
        raise UsageError(f"cannot read the token {path}: {error.strerror}") from error
    if not token or not token.isascii() or any(character <= 0x20 for character in token):
        raise UsageError(f"{path} contains no token: delete it and restart the service to create one")
    return token.decode("ascii")


def load_or_create_token(path: Path) -> str:
    """Return the token in a file, creating it if missing. Raises `UsageError`."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.BASE_FLAGS, 0o600)
    except FileExistsError:
        return read_token(path)
    except OSError as error:
        raise UsageError(f"cannot create the token {path}: {error.strerror}") from error
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secrets.token_urlsafe(TOKEN_BYTES) + "\n")
    return read_token(path)


class TokenInterceptor(grpc.aio.ServerInterceptor):
    """Interceptor that passes calls with the token; others end with UNAUTHENTICATED before their request is read."""

    def __init__(self, token: str, refusals: RefusalLog) -> None:
        self._digest = _digest(token)
        self._refusals = refusals

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], "Awaitable[Handler | None]"],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "Handler | None":
        """Return the handler of a call, or one that refuses it."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        # An unknown method has no handler; grpc refuses it itself.
        if not handler or method.startswith(HEALTH_PREFIX):
            return handler
        reason = self._find_refusal_reason(handler_call_details.invocation_metadata)
        return self._make_refusal_handler(method, reason) if reason else handler

    def _find_refusal_reason(self, metadata: Any) -> str:
        """Return why a call with this metadata is refused; empty if it is accepted."""
        given: list[str | bytes] = []
        for key, value in metadata or ():
            if key == "origin":
                return _WEB_PAGE
            if key == "authorization":
                given.append(value)
        if len(given) != 1:
            return _MISSING_CREDENTIAL
        scheme, _, token = str(given[0]).partition(" ")
        # Digests, so that the duration reveals not even the length of the token.
        right = hmac.compare_digest(_digest(token.strip()), self._digest)
        return "" if right and scheme.lower() == "bearer" else _WRONG_CREDENTIAL

    def _make_refusal_handler(self, method: str, reason: str) -> "Handler":
        async def refuse(_: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            self._refusals.record_call(method, context.peer())
            await abort_unauthenticated(context, reason)

        # As a stream of requests, whatever the method accepts: grpc waits for the request of any other kind, so an
        # unauthenticated client could hold calls open forever, with megabytes in each.
        return grpc.stream_stream_rpc_method_handler(refuse)  # pyright: ignore[reportArgumentType, reportUnknownVariableType] (the stubs know no asynchronous handler)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
