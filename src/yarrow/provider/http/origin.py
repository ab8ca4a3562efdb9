"""Origin of a URL, and the errors for a URL without one."""

from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from yarrow.errors import Code, ProviderError

DEFAULT_PORTS = {"http": 80, "https": 443}


class Origin(Struct, frozen=True):
    """Scheme, host and port of a URL; `host` is lower-case and without the brackets of an IPv6 address."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self._bracketed}:{self.port}"

    @property
    def authority(self) -> str:
        """The host as in a URL and a host header: with the port only if it is not the default."""
        return self._bracketed if self.port == DEFAULT_PORTS[self.scheme] else str(self)

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def parse_url(url: str) -> tuple[Origin, SplitResult]:
    """Return the origin of a URL, and its parts; INVALID_REQUEST describes a defect."""
    parts = _split(url)
    if parts.scheme not in DEFAULT_PORTS:
        raise _invalid(url, "does not start with http:// or https://")
    if "@" in parts.netloc:
        raise _invalid(url, "contains a user name or password; use an authorization header instead")
    if not parts.hostname:
        raise _invalid(url, "has no host")
    port = get_port(parts)
    if not port:
        raise _invalid(url, "has an invalid port: use 1 to 65535")
    return Origin(parts.scheme, parts.hostname, port), parts


def get_port(parts: SplitResult) -> int:
    """Return the port of a URL, 0 if it is invalid."""
    try:
        return DEFAULT_PORTS[parts.scheme] if parts.port is None else parts.port
    except ValueError:
        return 0


def _split(url: str) -> SplitResult:
    # Checked first, because urlsplit silently removes tabs and line ends.
    if not (url.isascii() and url.isprintable()) or " " in url:
        raise _invalid(url, "contains a space, control or non-ASCII character; percent-encode it")
    try:
        return urlsplit(url)
    except ValueError as error:
        raise _invalid(url, f"is invalid: {error}") from None


def _invalid(url: str, what: str) -> ProviderError:
    return ProviderError(Code.INVALID_REQUEST, f"the URL {_redact_url(url)} {what}")


def _redact_url(url: str) -> str:
    """Quote a URL without parts that may be secret: the query and the part before the @."""
    scheme, mark, rest = url.partition("://")
    authority, slash, path = rest.partition("?")[0].partition("#")[0].partition("/")
    return ascii(f"{scheme}{mark}{authority.rpartition('@')[2]}{slash}{path}")
