"""Which servers are asked without the proxy: this machine, and what NO_PROXY lists."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from msgspec import Struct

from yarrow.provider.http.origin import Origin

_Address = IPv4Address | IPv6Address
_Network = IPv4Network | IPv6Network


class _NoProxyEntry(Struct, frozen=True):
    """A network or a name (one of them), and a port; 0 is any."""

    name: str
    network: _Network | None
    port: int


class ProxyExceptions:
    """The entries of a NO_PROXY text, between commas or blanks.

    `*` is every server. A name covers itself and every name below it, with or without a dot or `*.` in front. An
    address covers itself, a network (`10.0.0.0/8`) its addresses; no name is resolved for that. Each may end in a port
    (`[::1]:8080`). What is none of these covers nothing.
    """

    def __init__(self, text: str) -> None:
        words = text.replace(",", " ").lower().split()
        self._all = "*" in words
        self._entries = [_parse_entry(word) for word in words]

    def covers(self, origin: Origin) -> bool:
        """Tell whether a server is asked without the proxy."""
        host = origin.host.rstrip(".")
        address = _address(host)
        if self._all or _is_this_machine(host, address):
            return True
        return any(_matches(entry, host, address) for entry in self._entries if entry.port in (0, origin.port))


def _is_this_machine(host: str, address: _Address | None) -> bool:
    """Tell whether a host is this machine: a proxy would look for the server at its own place."""
    if address is None:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_unspecified


def _matches(entry: _NoProxyEntry, host: str, address: _Address | None) -> bool:
    if address is None:
        return host == entry.name or host.endswith(f".{entry.name}")
    return entry.network is not None and address in entry.network


def _parse_entry(word: str) -> _NoProxyEntry:
    # As a whole first: the colons of an IPv6 address do not begin a port.
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
