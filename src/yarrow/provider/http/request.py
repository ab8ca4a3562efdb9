"""What is asked of a server, checked and put into the bytes that go over the wire."""

from string import ascii_letters, digits
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from yarrow.errors import Code, ProviderError

PORTS = {"http": 80, "https": 443}
METHODS = ("GET", "POST")
OURS = frozenset({"accept-encoding", "connection", "content-length", "transfer-encoding"})
"""Headers that state how we frame and read; a caller that set one would make us lie."""

_TOKEN = frozenset(ascii_letters + digits + "!#$%&'*+-.^_`|~")
_CONTROL = frozenset(map(chr, [*range(9), *range(10, 32), 127]))


class Timeouts(Struct, frozen=True):
    """How long to wait for a server, in seconds; None is no limit."""

    connect: float = 10.0
    """For the name, the connection and TLS together."""
    write: float = 30.0
    """In which nothing of the request leaves."""
    first_byte: float | None = 300.0
    """From the request sent to the first byte of the response head."""
    idle: float | None = 120.0
    """Between bytes of a response."""


class Request(Struct, frozen=True):
    """One request; `method` is GET or POST, `url` http:// or https://, all printable ASCII."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    timeouts: Timeouts = Timeouts()


class Origin(Struct, frozen=True):
    """The server that a URL names; `host` is lower-case and without the brackets of an IPv6 address."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"


def encode(request: Request) -> tuple[Origin, bytes]:
    """Return the server to ask and the bytes to send it; INVALID_REQUEST names the value that cannot be sent."""
    if request.method not in METHODS:
        raise _invalid(f"the method {request.method!r} is neither GET nor POST")
    parts = _split(request.url)
    origin = _origin(request.url, parts)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [f"{request.method} {target} HTTP/1.1"]
    if not any(name.lower() == "host" for name, _ in request.headers):
        host = _bracketed(origin.host)
        lines.append(f"host: {host if origin.port == PORTS[origin.scheme] else origin}")
    lines.append("accept-encoding: identity")
    if request.method == "POST" or request.body:
        lines.append(f"content-length: {len(request.body)}")
    lines.extend(_header(name, value) for name, value in request.headers)
    return origin, "\r\n".join([*lines, "", ""]).encode("latin-1") + request.body


def _split(url: str) -> SplitResult:
    # Asked first, because urlsplit removes tabs and line ends in silence.
    if not (url.isascii() and url.isprintable()) or " " in url:
        raise _invalid(f"the URL {_shown(url)} holds a space, a control or a non-ASCII character; percent-encode it")
    try:
        return urlsplit(url)
    except ValueError as error:
        raise _invalid(f"the URL {_shown(url)} cannot be read: {error}") from None


def _origin(url: str, parts: SplitResult) -> Origin:
    if parts.scheme not in PORTS:
        raise _invalid(f"the URL {_shown(url)} does not begin with http:// or https://")
    if "@" in parts.netloc:
        raise _invalid(f"the URL {_shown(url)} carries a user name or password; send an authorization header instead")
    if not parts.hostname:
        raise _invalid(f"the URL {_shown(url)} names no host")
    try:
        port = PORTS[parts.scheme] if parts.port is None else parts.port
    except ValueError:
        port = 0
    if not port:
        raise _invalid(f"the URL {_shown(url)} has a port that is not between 1 and 65535")
    return Origin(parts.scheme, parts.hostname, port)


def _header(name: str, value: str) -> str:
    # A value is never shown: it may be a key.
    if not name or not _TOKEN.issuperset(name):
        raise _invalid(f"the header name {name!r} may only hold letters, digits and !#$%&'*+-.^_`|~")
    if name.lower() in OURS:
        raise _invalid(f"the header {name!r} is set by the HTTP client itself; leave it out")
    if not _CONTROL.isdisjoint(value):
        raise _invalid(f"the header {name!r} holds a control character (often the line end of a key read from a file)")
    if not all(character <= "\xff" for character in value):
        raise _invalid(f"the header {name!r} holds a character outside Latin-1")
    return f"{name}: {value}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _shown(url: str) -> str:
    """Quote a URL without what may be secret in it: the query and the part before the @."""
    scheme, mark, rest = url.partition("://")
    authority, slash, path = rest.partition("?")[0].partition("#")[0].partition("/")
    return ascii(f"{scheme}{mark}{authority.rpartition('@')[2]}{slash}{path}")


def _invalid(sentence: str) -> ProviderError:
    return ProviderError(Code.INVALID_REQUEST, sentence)
