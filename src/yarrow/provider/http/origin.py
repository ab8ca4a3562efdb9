"""The server that a URL names, and the words for a URL that names none."""

from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from yarrow.errors import Code, ProviderError

DEFAULT_PORTS = {"http": 80, "https": 443}


class Origin(Struct, frozen=True):
    """The server that a URL names; `host` is lower-case and without the brackets of an IPv6 address."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self._bracketed}:{self.port}"

    @property
    def authority(self) -> str:
        """The host as a URL and a host header name it: with the port only if it is not the usual one."""
        return self._bracketed if self.port == DEFAULT_PORTS[self.scheme] else str(self)

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def parse_url(url: str) -> tuple[Origin, SplitResult]:
    """Return the server that a URL names, and its parts; INVALID_REQUEST says what is wrong with it."""
    parts = _split(url)
    if parts.scheme not in DEFAULT_PORTS:
        raise _invalid(url, "does not begin with http:// or https://")
    if "@" in parts.netloc:
        raise _invalid(url, "carries a user name or password; send an authorization header instead")
    if not parts.hostname:
        raise _invalid(url, "names no host")
    port = get_port(parts)
    if not port:
        raise _invalid(url, "has a port that is not between 1 and 65535")
    return Origin(parts.scheme, parts.hostname, port), parts


def get_port(parts: SplitResult) -> int:
    """Return the port of a URL, 0 if what it says is none."""
    try:
        return DEFAULT_PORTS[parts.scheme] if parts.port is None else parts.port
    except ValueError:
        return 0


def _split(url: str) -> SplitResult:
    # Asked first, because urlsplit removes tabs and line ends in silence.
    if not (url.isascii() and url.isprintable()) or " " in url:
        raise _invalid(url, "holds a space, a control or a non-ASCII character; percent-encode it")
    try:
        return urlsplit(url)
    except ValueError as error:
        raise _invalid(url, f"cannot be read: {error}") from None


def _invalid(url: str, what: str) -> ProviderError:
    return ProviderError(Code.INVALID_REQUEST, f"the URL {_redact_url(url)} {what}")


def _redact_url(url: str) -> str:
    """Quote a URL without what may be secret in it: the query and the part before the @."""
    scheme, mark, rest = url.partition("://")
    authority, slash, path = rest.partition("?")[0].partition("#")[0].partition("/")
    return ascii(f"{scheme}{mark}{authority.rpartition('@')[2]}{slash}{path}")
