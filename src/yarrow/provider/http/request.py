"""What is asked of a server, checked and put into the bytes that go over the wire."""

from string import ascii_letters, digits

from msgspec import Struct

from yarrow.errors import Code, ProviderError
from yarrow.provider.http.origin import parse_url
from yarrow.provider.http.proxy import ProxySettings, Route

METHODS = ("GET", "POST")
RESERVED_HEADERS = frozenset(
    {"accept-encoding", "connection", "content-length", "proxy-authorization", "transfer-encoding"}
)
"""Headers that state how we frame and read, and who we are to a proxy; a caller that set one would make us lie."""

_TOKEN = frozenset(ascii_letters + digits + "!#$%&'*+-.^_`|~")
_CONTROL = frozenset(map(chr, [*range(9), *range(10, 32), 127]))


class Timeouts(Struct, frozen=True):
    """How long to wait for a server, in seconds; None is no limit."""

    connect: float = 10.0
    """For the name, the connection, the way through a proxy and TLS together."""
    write: float = 30.0
    """In which nothing of the request leaves."""
    first_byte: float | None = 300.0
    """From the request sent to the first byte of the response head."""
    idle: float | None = 120.0
    """Between bytes of a response."""
    stall: float | None = 600.0
    """Between content of a streamed answer, whatever other bytes come; read by the formats' transport."""


class HttpRequest(Struct, frozen=True):
    """One request; `method` is GET or POST, `url` http:// or https://, all printable ASCII."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    timeouts: Timeouts = Timeouts()


def encode_http_request(request: HttpRequest, proxies: ProxySettings) -> tuple[Route, bytes]:
    """Return the way to the server and the bytes to send on it.

    Raises ProviderError: INVALID_REQUEST names the value that cannot be sent, PROVIDER_SETUP a proxy that cannot be
    used.
    """
    if request.method not in METHODS:
        raise _invalid(f"the method {request.method!r} is neither GET nor POST")
    origin, parts = parse_url(request.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    route = proxies.find_route(origin)
    # Inside a tunnel we speak to the server itself, and the proxy's password is none of its business.
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
        raise _invalid(f"the header name {name!r} may only hold letters, digits and !#$%&'*+-.^_`|~")
    if name.lower() in RESERVED_HEADERS:
        raise _invalid(f"the header {name!r} is set by the HTTP client itself; leave it out")
    if not _CONTROL.isdisjoint(value):
        raise _invalid(f"the header {name!r} holds a control character (often the line end of a key read from a file)")
    if not all(character <= "\xff" for character in value):
        raise _invalid(f"the header {name!r} holds a character outside Latin-1")
    return f"{name}: {value}"


def _invalid(sentence: str) -> ProviderError:
    return ProviderError(Code.INVALID_REQUEST, sentence)
