"""HTTP requests: validation and wire format."""

from string import ascii_letters, digits

from msgspec import Struct

from yarrow.errors import Code, ProviderError
from yarrow.provider.http.origin import parse_url
from yarrow.provider.http.proxy import ProxySettings, Route

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
