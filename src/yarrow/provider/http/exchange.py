"""HTTP requests, and the exchange of one on a connection: request out, response in, with an idle timeout."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from string import ascii_letters, digits

from msgspec import Struct

from yarrow.errors import Code, ProviderError
from yarrow.provider.http.parser import ResponseHead, ResponseParser
from yarrow.provider.http.proxy import ProxySettings, Route, parse_url

METHODS = ("GET", "POST")
RESERVED_HEADERS = frozenset(
    {"accept-encoding", "connection", "content-length", "proxy-authorization", "transfer-encoding"}
)
"""Headers that describe our framing and our proxy credentials; a caller's values would contradict them."""

_TOKEN = frozenset(ascii_letters + digits + "!#$%&'*+-.^_`|~")
_CONTROL = frozenset(map(chr, [*range(9), *range(10, 32), 127]))


class Timeouts(Struct, frozen=True):
    """Timeouts for a server, in seconds; None means no limit."""

    connect: float = 10.0
    """For name resolution, connection, proxy tunnel and TLS together."""
    write: float = 30.0
    """Maximum time in which no byte of the request is sent."""
    first_byte: float | None = 300.0
    """From the end of the request to the first byte of the response head."""
    idle: float | None = 120.0
    """Between bytes of a response."""
    stall: float | None = 600.0
    """Between content of a streamed answer, whatever other bytes arrive; enforced by the transport of the format."""


class HttpRequest(Struct, frozen=True):
    """One request; `method` is GET or POST, `url` http:// or https://, all printable ASCII."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    timeouts: Timeouts = Timeouts()


def encode_http_request(request: HttpRequest, proxies: ProxySettings) -> tuple[Route, bytes]:
    """Return the route to the server and the bytes to send on it.

    Raises ProviderError: INVALID_REQUEST names the invalid value, PROVIDER_SETUP an unusable proxy.
    """
    if request.method not in METHODS:
        raise _invalid(f"the method {request.method!r} is neither GET nor POST")
    origin, parts = parse_url(request.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    route = proxies.find_route(origin)
    # Inside a tunnel we speak to the server itself, which must not see the proxy's password.
    proxy = None if route.is_tunnelled else route.proxy
    lines = [f"{request.method} {f'http://{origin.authority}' if proxy else ''}{target} HTTP/1.1"]
    if not any(name.lower() == "host" for name, _ in request.headers):
        lines.append(f"host: {origin.authority}")
    lines.append("accept-encoding: identity")
    if proxy is not None and proxy.authorization:
        lines.append(f"proxy-authorization: {proxy.authorization}")
    if request.method == "POST" or request.body:
        lines.append(f"content-length: {len(request.body)}")
    lines.extend(_header(name, value) for name, value in request.headers)
    return route, "\r\n".join([*lines, "", ""]).encode("latin-1") + request.body


def _header(name: str, value: str) -> str:
    # A value is never shown: it may be a key.
    if not name or not _TOKEN.issuperset(name):
        raise _invalid(f"the header name {name!r} may only contain letters, digits and !#$%&'*+-.^_`|~")
    if name.lower() in RESERVED_HEADERS:
        raise _invalid(f"the header {name!r} is set by the HTTP client; remove it")
    if not _CONTROL.isdisjoint(value):
        raise _invalid(f"the header {name!r} contains a control character, often a newline after a key from a file")
    if not all(character <= "\xff" for character in value):
        raise _invalid(f"the header {name!r} contains a character outside Latin-1")
    return f"{name}: {value}"


def _invalid(sentence: str) -> ProviderError:
    return ProviderError(Code.INVALID_REQUEST, sentence)


MAX_UNREAD_BYTES = 256 * 1024
"""Maximum unread bytes; beyond it the socket is paused until the reader has consumed them."""


class _Stage(Enum):
    WRITING = "accepted no more of the request for {limit:g} s"
    WAITING = "did not answer within {limit:g} s; set firstByteTimeout to wait longer"
    READING = "sent nothing for {limit:g} s during its answer; set idleTimeout to wait longer"


class Exchange:
    """State of one exchange; the connection reports to it, one task reads from it.

    After a failure, the data that had arrived is returned first, then the failure is raised.
    """

    def __init__(self, peer: str, transport: asyncio.Transport, timeouts: Timeouts) -> None:
        self.lost_before_response = False
        """The connection was lost before the first byte of a response, so the request may use another one."""
        self._peer = peer
        self._transport = transport
        self._parser = ResponseParser(peer)
        self._limits = {
            _Stage.WRITING: timeouts.write,
            _Stage.WAITING: timeouts.first_byte,
            _Stage.READING: timeouts.idle,
        }
        self._idle_timer = IdleTimer(expired=self._on_stall, excused=self._is_silence_excused)
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._failure: ProviderError | None = None
        self._has_received = False
        self._paused = False
        self._unread = 0
        self._unsent = transport.get_write_buffer_size()
        self._enter_stage(_Stage.WRITING)

    @property
    def is_over(self) -> bool:
        """No more of this response can arrive."""
        return self._parser.complete or self._failure is not None

    @property
    def is_reusable(self) -> bool:
        """The response was complete and fully read, and the connection is ready for another."""
        parser = self._parser
        return parser.complete and parser.keep_alive and not parser.pieces and self._failure is None

    async def read_head(self) -> ResponseHead:
        """Wait for the head of the response."""
        while self._parser.head is None:
            await self._wait_for_data()
        return self._parser.head

    async def receive(self) -> bytes:
        """Wait for more of the body; b"" is its end."""
        while not (pieces := self._parser.pieces):
            if self._parser.complete:
                return b""
            await self._wait_for_data()
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._unread = 0
        if self._paused:
            self._paused = False
            self._idle_timer.touch()
            self._transport.resume_reading()
        return body

    def on_sent(self) -> None:
        """Note that the whole request has been sent."""
        if self._stage is _Stage.WRITING:
            self._enter_stage(_Stage.WAITING)

    def on_received(self, data: bytes) -> None:
        """Process the bytes of one read of the socket."""
        self._has_received = True
        self._idle_timer.touch()
        parser = self._parser
        try:
            parser.feed(data)
        except ProviderError as error:
            self.fail(error)
            return
        if parser.complete:
            self._idle_timer.stop()
        elif parser.has_begun is not (self._stage is _Stage.READING):
            self._enter_stage(_Stage.READING if parser.has_begun else _Stage.WAITING)
        self._unread += len(data)
        if self._unread > MAX_UNREAD_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def on_ended(self, cause: Exception | None) -> None:
        """Process the end of the connection; `cause` is None if the server closed it properly."""
        if not self.is_over:
            self._failure = self._parser.end(cause)
            self.lost_before_response = self._failure is not None and not self._has_received
        self._idle_timer.stop()
        self._wake()

    def fail(self, error: ProviderError) -> None:
        """End the exchange with our own error and close the connection."""
        if not self.is_over:
            self._failure = error
        self._idle_timer.stop()
        self._wake()
        abort_transport(self._transport)

    def _enter_stage(self, stage: _Stage) -> None:
        self._stage = stage
        self._idle_timer.start(self._limits[stage])

    async def _wait_for_data(self) -> None:
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

    def _is_silence_excused(self) -> bool:
        if self._stage is not _Stage.WRITING:
            return self._paused
        unsent, self._unsent = self._unsent, self._transport.get_write_buffer_size()
        return self._unsent < unsent

    def _on_stall(self) -> None:
        sentence = self._stage.value.format(limit=self._limits[self._stage])
        self.fail(ProviderError(Code.STREAM_STALLED, f"{self._peer} {sentence}", retryable=True))


def abort_transport(transport: asyncio.Transport) -> None:
    """Close a transport without waiting; no effect if it is already closed."""
    # A closed TLS-in-TLS transport has released its protocol, and early versions of 3.11 fail on that.
    with suppress(AttributeError):
        transport.abort()


class IdleTimer:
    """Timer that calls `expired` once when the last call of `touch()` is older than the limit.

    `excused` is called first; True restarts the timer, for a silence that the server did not cause.
    """

    def __init__(self, *, expired: Callable[[], None], excused: Callable[[], bool]) -> None:
        self._loop = asyncio.get_running_loop()
        self._expired = expired
        self._excused = excused
        self._limit = 0.0
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self, limit: float | None) -> None:
        """Restart the timer with a limit in seconds; None means no limit."""
        self.stop()
        self._last = self._loop.time()
        if limit is not None:
            self._limit = limit
            self._timer = self._loop.call_at(self._last + limit, self._check)

    def touch(self) -> None:
        """Note a sign of life."""
        self._last = self._loop.time()

    def stop(self) -> None:
        """Stop the timer; no callback is made afterwards."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        now = self._loop.time()
        if now >= self._last + self._limit:
            if not self._excused():
                self._timer = None
                self._expired()
                return
            self._last = now
        self._timer = self._loop.call_at(self._last + self._limit, self._check)
