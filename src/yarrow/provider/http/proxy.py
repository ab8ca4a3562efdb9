"""The way to a server: straight, or through the proxy that the environment names for it."""

from collections.abc import Mapping
from urllib.parse import unquote_to_bytes, urlsplit

from msgspec import Struct

from yarrow.errors import Code, ProviderError
from yarrow.provider.http.origin import DEFAULT_PORTS, Origin, get_port


class Proxy(Struct, frozen=True):
    """A proxy, the value of the proxy-authorization header it is sent (empty: none), and the variable that names it."""

    origin: Origin
    authorization: str
    variable: str

    def __str__(self) -> str:
        return f"the proxy {self.origin} (of {self.variable})"

    __repr__ = __str__  # the generated one would show the password


class Route(Struct, frozen=True):
    """The way to `origin`; None is the straight one."""

    origin: Origin
    proxy: Proxy | None = None

    def __str__(self) -> str:
        return str(self.origin) if self.proxy is None else f"{self.origin} (through the proxy {self.proxy.origin})"

    @property
    def first_hop(self) -> Origin:
        """The server that the connection goes to."""
        return self.origin if self.proxy is None else self.proxy.origin

    @property
    def first_hop_name(self) -> str:
        """What an error calls that server."""
        return str(self.origin if self.proxy is None else self.proxy)

    @property
    def is_tunnelled(self) -> bool:
        """Whether the proxy only carries bytes, because they are encrypted for the server behind it."""
        return self.proxy is not None and self.origin.scheme == "https"


class ProxySettings:
    """Finds the way to a server; looks at the environment when it is made and never again.

    The variables are those that every program knows: `http_proxy` or `https_proxy` by the scheme of the URL, else
    `all_proxy`, each in lower case first, and `no_proxy` for the exceptions. An empty one counts as not set. This
    machine itself is never asked through a proxy.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        named = {scheme: _find_variable(environment, *_list_variables(scheme, environment)) for scheme in DEFAULT_PORTS}
        self._named = {scheme: found for scheme, found in named.items() if found[1]}
        if self._named:
            from yarrow.provider.http.no_proxy import ProxyExceptions

            self._exceptions = ProxyExceptions(_find_variable(environment, "no_proxy", "NO_PROXY")[1])

    def find_route(self, origin: Origin) -> Route:
        """Return the way to a server; PROVIDER_SETUP tells of a proxy that cannot be used."""
        if origin.scheme not in self._named or self._exceptions.covers(origin):
            return Route(origin)
        return Route(origin, _parse_proxy(*self._named[origin.scheme], origin))


def _list_variables(scheme: str, environment: Mapping[str, str]) -> list[str]:
    names = [f"{scheme}_proxy", f"{scheme}_proxy".upper(), "all_proxy", "ALL_PROXY"]
    if "REQUEST_METHOD" in environment:
        # In a CGI script this variable is the header "Proxy:" of whoever asked.
        names = [name for name in names if name != "HTTP_PROXY"]
    return names


def _find_variable(environment: Mapping[str, str], *names: str) -> tuple[str, str]:
    """Return the first of these variables that is set, with its value; two empty texts if there is none."""
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
        sentence = (
            f"{variable} names a {parts.scheme}:// proxy, which is not spoken here: name an http:// or https:// one"
        )
        raise ProviderError(Code.PROVIDER_SETUP, f"{sentence}, {_no_proxy_hint(origin)}")
    host = parts.hostname or ""
    plain = parts.scheme and host and host.isascii() and url.isprintable() and " " not in host
    port = get_port(parts) if plain else 0
    if not port:
        raise _malformed(variable, origin)
    return Proxy(Origin(parts.scheme, host, port), _encode_basic(parts.username, parts.password), variable)


def _malformed(variable: str, origin: Origin) -> ProviderError:
    # The value is not shown: a password with special characters may have ended up anywhere in it.
    sentence = f"{variable} is not the URL of a proxy: write http://HOST:PORT or http://USER:PASSWORD@HOST:PORT"
    sentence = f"{sentence} with special characters percent-encoded, {_no_proxy_hint(origin)}"
    return ProviderError(Code.PROVIDER_SETUP, sentence)


def _no_proxy_hint(origin: Origin) -> str:
    return f"or add {origin.host} to NO_PROXY to go without"


def _encode_basic(user: str | None, password: str | None) -> str:
    if not user and not password:
        return ""
    from base64 import b64encode

    secret = unquote_to_bytes(user or "") + b":" + unquote_to_bytes(password or "")
    return f"Basic {b64encode(secret).decode()}"
