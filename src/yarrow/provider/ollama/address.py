"""Root URL of an Ollama server, in any form that the user wrote it."""

from yarrow.provider.addresses import get_host

DEFAULT_URL = "http://127.0.0.1:11434"
_PORT = 11434
_HOSTED = "ollama.com"
_PATHS = ("/api/chat", "/api", "/v1")


def parse_root(configured: str) -> str:
    """Return the root for a base URL or a value of OLLAMA_HOST; an empty one is the default address on this machine.

    Without a scheme it is a host with an optional port; an address on which a server listens on all interfaces is read
    as this machine.
    """
    root = configured.strip().rstrip("/")
    for path in _PATHS:
        root = root.removesuffix(path).rstrip("/")
    if not root:
        return DEFAULT_URL
    if "://" not in root:
        host, port = _split_port(root)
        root = f"http://{host or '127.0.0.1'}:{port or _PORT}"
    return root.replace("://0.0.0.0", "://127.0.0.1", 1).replace("://[::]", "://[::1]", 1)


def is_hosted(root: str) -> bool:
    """Return whether a server is the vendor's own; any other runs on a user's machine and may be slow."""
    host = get_host(root)
    return host == _HOSTED or host.endswith(f".{_HOSTED}")


def _split_port(place: str) -> tuple[str, str]:
    """Return the host and the port of an address; a bare IPv6 address has no port."""
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        return place, ""
    return (f"[{place}]", "") if ":" in host and not host.endswith("]") else (host, port)
