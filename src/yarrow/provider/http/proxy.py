"""Origins of URLs, and the proxies on the way to them."""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import SplitResult, unquote_to_bytes, urlsplit

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


class Proxy(Struct, frozen=True):
    """A proxy, its proxy-authorization header (empty: none), and the variable that names it."""

    origin: Origin
    authorization: str
    variable: str

    def __str__(self) -> str:
        return f"the proxy {self.origin} (from {self.variable})"

    __repr__ = __str__  # the generated one would show the password


class Route(Struct, frozen=True):
    """The route to `origin`; without a proxy it is direct."""

    origin: Origin
    proxy: Proxy | None = None

    def __str__(self) -> str:
        return str(self.origin) if self.proxy is None else f"{self.origin} (via the proxy {self.proxy.origin})"

    @property
    def first_hop(self) -> Origin:
        """The server that the connection goes to."""
        return self.origin if self.proxy is None else self.proxy.origin

    @property
    def first_hop_name(self) -> str:
        """The name of that server in errors."""
        return str(self.origin if self.proxy is None else self.proxy)

    @property
    def is_tunnelled(self) -> bool:
        """The proxy only relays bytes, because they are encrypted for the server behind it."""
        return self.proxy is not None and self.origin.scheme == "https"


class ProxySettings:
    """Proxy settings from the environment, which is read only once.

    The variables are the conventional ones: `http_proxy` or `https_proxy` by the scheme of the URL, else `all_proxy`,
    each in lower case first, and `no_proxy` for the exceptions. An empty one counts as not set. This machine itself is
    never contacted through a proxy.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        named = {scheme: _find_variable(environment, *_list_variables(scheme, environment)) for scheme in DEFAULT_PORTS}
        self._named = {scheme: found for scheme, found in named.items() if found[1]}
        if self._named:
            self._exceptions = ProxyExceptions(_find_variable(environment, "no_proxy", "NO_PROXY")[1])

    def find_route(self, origin: Origin) -> Route:
        """Return the route to a server; raises PROVIDER_SETUP if a proxy is unusable."""
        if origin.scheme not in self._named or self._exceptions.covers(origin):
            return Route(origin)
        return Route(origin, _parse_proxy(*self._named[origin.scheme], origin))


def _list_variables(scheme: str, environment: Mapping[str, str]) -> list[str]:
    names = [f"{scheme}_proxy", f"{scheme}_proxy".upper(), "all_proxy", "ALL_PROXY"]
    if "REQUEST_METHOD" in environment:
        # In a CGI script this variable is the request's header "Proxy:".
        names = [name for name in names if name != "HTTP_PROXY"]
    return names


def _find_variable(environment: Mapping[str, str], *names: str) -> tuple[str, str]:
    """Return the first of these variables that is set, with its value; two empty strings if there is none."""
    for name in names:
        if value := environment.get(name, "").strip():
            return name, value
    return "", ""


def _parse_proxy(variable: str, value: str, origin: Origin) -> Proxy:
    url = value if "://" in value else f"http://{value}"
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _malformed(variable, origin) from None
    if parts.scheme and parts.scheme not in DEFAULT_PORTS:
        sentence = f"{variable} is a {parts.scheme}:// proxy, which is not supported: use an http:// or https:// one"
        raise ProviderError(Code.PROVIDER_SETUP, f"{sentence}, {_no_proxy_hint(origin)}")
    host = parts.hostname or ""
    plain = parts.scheme and host and host.isascii() and url.isprintable() and " " not in host
    port = get_port(parts) if plain else 0
    if not port:
        raise _malformed(variable, origin)
    return Proxy(Origin(parts.scheme, host, port), _encode_basic(parts.username, parts.password), variable)


def _malformed(variable: str, origin: Origin) -> ProviderError:
    # The value is not shown: a password with special characters may have ended up anywhere in it.
    sentence = f"{variable} is not a proxy URL: use http://HOST:PORT or http://USER:PASSWORD@HOST:PORT"
    sentence = f"{sentence} with special characters percent-encoded, {_no_proxy_hint(origin)}"
    return ProviderError(Code.PROVIDER_SETUP, sentence)


def _no_proxy_hint(origin: Origin) -> str:
    return f"or add {origin.host} to NO_PROXY"


def _encode_basic(user: str | None, password: str | None) -> str:
    if not user and not password:
        return ""
    from base64 import b64encode

    secret = unquote_to_bytes(user or "") + b":" + unquote_to_bytes(password or "")
    return f"Basic {b64encode(secret).decode()}"


_Address = IPv4Address | IPv6Address
_Network = IPv4Network | IPv6Network


class _NoProxyEntry(Struct, frozen=True):
    """A network or a name (one of them), and a port; 0 is any."""

    name: str
    network: _Network | None
    port: int


class ProxyExceptions:
    """Entries of a NO_PROXY value, separated by commas or blanks.

    `*` matches every server. A name matches itself and its subdomains, with or without a leading dot or `*.`. An
    address matches itself, a network (`10.0.0.0/8`) its addresses; names are not resolved for that. Each may end in a
    port (`[::1]:8080`). Any other entry matches nothing.
    """

    def __init__(self, text: str) -> None:
        words = text.replace(",", " ").lower().split()
        self._all = "*" in words
        self._entries = [_parse_entry(word) for word in words]

    def covers(self, origin: Origin) -> bool:
        """Return whether a server bypasses the proxy."""
        host = origin.host.rstrip(".")
        address = _address(host)
        if self._all or _is_this_machine(host, address):
            return True
        return any(_matches(entry, host, address) for entry in self._entries if entry.port in (0, origin.port))


def _is_this_machine(host: str, address: _Address | None) -> bool:
    """Return whether a host is this machine: a proxy would look for the server on its own machine."""
    if address is None:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_unspecified


def _matches(entry: _NoProxyEntry, host: str, address: _Address | None) -> bool:
    if address is None:
        return host == entry.name or host.endswith(f".{entry.name}")
    return entry.network is not None and address in entry.network


def _parse_entry(word: str) -> _NoProxyEntry:
    # Try the whole word first: the colons of an IPv6 address do not start a port.
    network, port = _network(word), 0
    if network is None:
        before, _, digits = word.rpartition(":")
        if before and digits.isdecimal() and len(digits) <= 5:
            word, port = before, int(digits)
        word = word.replace("[", "").replace("]", "")
        network = _network(word)
    name = word.removeprefix("*").strip(".") if network is None else ""
    return _NoProxyEntry(name, network, port)


def _network(word: str) -> _Network | None:
    try:
        return ip_network(word, strict=False)
    except ValueError:
        return None


def _address(host: str) -> _Address | None:
    try:
        address = ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
