"""Base URLs of servers: whose they are, and the address of each format in any form that the user wrote it."""

import re
from functools import lru_cache
from urllib.parse import urlsplit

from msgspec import Struct

from yarrow.config.provider_adapter_table import VENDORS

_LOCAL_NETWORKS = (
    *("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"),
    *("::1/128", "fc00::/7", "fe80::/10"),
)
"""Loopback, link-local and private networks (RFC 1918, RFC 3927, RFC 4193, RFC 4291)."""
_LOCAL_NAME = re.compile(r"(?!0x)(?=.*[a-z])[a-z0-9_-]+|.+\.(?:localhost|local|lan|internal|home\.arpa)")
"""Names that only a local network resolves: names without a dot, as in containers and hosts files, or under a domain
missing from the public DNS (RFC 6761, RFC 6762, RFC 8375; `.internal` is reserved by ICANN). A number is an address in
another notation and may be anywhere.
"""


def get_host(url: str) -> str:
    """Return the host of a URL in lower case; empty if it has none."""
    try:
        return (urlsplit(url.strip()).hostname or "").lower()
    except ValueError:
        return ""  # the HTTP client reports what is wrong with it


@lru_cache(maxsize=64)
def is_local(url: str) -> bool:
    """Return whether the server is on this machine or on the local network."""
    host = get_host(url).rstrip(".")
    if not host[:1].isdigit() and ":" not in host:
        return _LOCAL_NAME.fullmatch(host) is not None
    # Imported lazily because most hosts are names.
    from ipaddress import IPv6Address, ip_address, ip_network

    try:
        address = ip_address(host)
    except ValueError:
        return _LOCAL_NAME.fullmatch(host) is not None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address in ip_network(network) for network in _LOCAL_NETWORKS)


def is_vendor_url(url: str, provider_type: str) -> bool:
    """Return whether a base URL is the vendor's, over TLS; the vendor's key is sent only there.

    An empty URL means the vendor's.
    """
    host = get_host(VENDORS[provider_type].url)
    return url.strip() == "" or (url.strip().startswith("https://") and get_host(url) == host)


CHAT_PATH = "/chat/completions"
RESPONSES_PATH = "/responses"
_OPENAI_HOST = get_host(VENDORS["openai"].url)
_OPENAI_VERSION = re.compile(r"/v\d+\w*(/|$)")


class OpenAiAddress(Struct, frozen=True):
    """Address of an OpenAI-compatible server."""

    base: str
    """Base URL without a trailing slash."""
    host: str
    query: str = ""
    """Query string of every request, such as `api-version=2024-10-21`."""
    other: str = ""
    """Base URL to try if nothing is found at `base`; empty if there is none."""
    path: str = CHAT_PATH
    """Path of model calls behind the base URL."""

    @property
    def call_url(self) -> str:
        """URL for model calls."""
        return f"{self.base}{self.path}{f'?{self.query}' if self.query else ''}"

    @property
    def is_official(self) -> bool:
        """The server is the vendor's own."""
        return self.host == _OPENAI_HOST

    @property
    def is_local_server(self) -> bool:
        """The server is on this machine or on the local network."""
        return is_local(self.base)

    @property
    def is_trusted(self) -> bool:
        """The vendor's key may be sent there: only to the vendor, over TLS."""
        return self.is_official and self.base.startswith("https://")


def parse_openai_address(url: str, path: str = CHAT_PATH) -> OpenAiAddress:
    """Return the address for a configured base URL; an empty one is the vendor's. `path` is that of model calls.

    A URL that ends in this path, or contains a version, is used as written, and a bare host gets `/v1`. Any other path
    is used as written, and with `/v1` if nothing is found there.
    """
    written, _, query = (url or VENDORS["openai"].url).strip().partition("?")
    base = written.rstrip("/").removesuffix(path).rstrip("/")
    try:
        parts = urlsplit(base)
        host = (parts.hostname or "").lower()
    except ValueError:
        return OpenAiAddress(base, "", query, path=path)  # the HTTP client reports what is wrong with it
    if written.rstrip("/").endswith(path) or _OPENAI_VERSION.search(parts.path):
        return OpenAiAddress(base, host, query, path=path)
    if not parts.path:
        return OpenAiAddress(f"{base}/v1", host, query, path=path)
    return OpenAiAddress(base, host, query, other=f"{base}/v1", path=path)


def make_messages_url(url: str) -> str:
    """Return the base of the messages format's request paths, including `/v1`, for a configured base URL; an empty one
    is the vendor's.
    """
    root = (url.strip() or VENDORS["messages"].url).rstrip("/").removesuffix("/messages").rstrip("/")
    return f"{root.removesuffix('/v1').rstrip('/')}/v1"


GEMINI_VERSION = "v1beta"
"""API version that supports tools and thought signatures."""
_GEMINI_VERSION_AT_END = re.compile(r"/(v\d+(?:alpha|beta)?\d*)$")


class GeminiAddress(Struct, frozen=True):
    """Address for Gemini's library: `base` has no trailing slash, `version` is the first part of every path."""

    base: str
    version: str


def parse_gemini_address(url: str) -> GeminiAddress:
    """Return the address for a configured base URL; an empty one is the vendor's."""
    base = (url.strip() or VENDORS["gemini"].url).rstrip("/")
    if found := _GEMINI_VERSION_AT_END.search(base):
        return GeminiAddress(base[: found.start()].rstrip("/"), found[1])
    return GeminiAddress(base, GEMINI_VERSION)


OLLAMA_URL = "http://127.0.0.1:11434"
_OLLAMA_PORT = 11434
_OLLAMA_HOSTED = "ollama.com"
_OLLAMA_PATHS = ("/api/chat", "/api", "/v1")


def parse_ollama_root(configured: str) -> str:
    """Return the root for a base URL or a value of OLLAMA_HOST; an empty one is the default address on this machine.

    Without a scheme it is a host with an optional port; an address on which a server listens on all interfaces is read
    as this machine.
    """
    root = configured.strip().rstrip("/")
    for path in _OLLAMA_PATHS:
        root = root.removesuffix(path).rstrip("/")
    if not root:
        return OLLAMA_URL
    if "://" not in root:
        host, port = _split_port(root)
        root = f"http://{host or '127.0.0.1'}:{port or _OLLAMA_PORT}"
    return root.replace("://0.0.0.0", "://127.0.0.1", 1).replace("://[::]", "://[::1]", 1)


def is_hosted_ollama(root: str) -> bool:
    """Return whether a server is Ollama's own; any other runs on a user's machine and may be slow."""
    host = get_host(root)
    return host == _OLLAMA_HOSTED or host.endswith(f".{_OLLAMA_HOSTED}")


def _split_port(place: str) -> tuple[str, str]:
    """Return the host and the port of an address; a bare IPv6 address has no port."""
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        return place, ""
    return (f"[{place}]", "") if ":" in host and not host.endswith("]") else (host, port)
