"""Classification of a base URL's host: the vendor's, on localhost or on the local network."""

import re
from functools import lru_cache
from urllib.parse import urlsplit

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


def is_official_url(url: str, official: str) -> bool:
    """Return whether a base URL is the vendor's, over TLS; the vendor's key is sent only there.

    `official` is the vendor's base URL; an empty `url` means the same.
    """
    return url.strip() == "" or (url.strip().startswith("https://") and get_host(url) == get_host(official))
