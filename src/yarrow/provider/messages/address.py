"""Where a server of the messages format is: its base URL, however the user wrote it."""

import re
from urllib.parse import urlsplit

OFFICIAL = "https://api.anthropic.com"
_LOCAL = re.compile(r"localhost|127\..*|::1|10\..*|192\.168\..*|.*\.local")


def base_of(url: str) -> str:
    """Return the address that paths are put behind, `/v1` included, for a configured base URL; empty is the vendor."""
    root = (url.strip() or OFFICIAL).rstrip("/").removesuffix("/messages").rstrip("/")
    return f"{root.removesuffix('/v1').rstrip('/')}/v1"


def is_official(url: str) -> bool:
    """Tell whether a configured base URL is the vendor's, and not in the clear: the vendor's key goes nowhere else."""
    return url.strip() == "" or (url.strip().startswith("https://") and _host(url) == urlsplit(OFFICIAL).hostname)


def is_local(url: str) -> bool:
    """Tell whether the server is on this machine or in this house."""
    return _LOCAL.fullmatch(_host(url)) is not None


def _host(url: str) -> str:
    try:
        return (urlsplit(url.strip()).hostname or "").lower()
    except ValueError:
        return ""  # the HTTP client says what is wrong with it
