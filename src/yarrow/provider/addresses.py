"""Reads the host of a base URL, and tells whether it is the vendor's, or on this machine or in this house."""

import re
from urllib.parse import urlsplit

_LOCAL = re.compile(r"localhost|127\..*|::1|10\..*|192\.168\..*|.*\.local")


def host_of(url: str) -> str:
    """Return the host of a URL in lower case; empty when it has none."""
    try:
        return (urlsplit(url.strip()).hostname or "").lower()
    except ValueError:
        return ""  # the HTTP client says what is wrong with it


def is_local(url: str) -> bool:
    """Tell whether the server is on this machine or in this house."""
    return _LOCAL.fullmatch(host_of(url)) is not None


def is_vendors(url: str, official: str) -> bool:
    """Tell whether a configured base URL is the vendor's, and not in the clear: the vendor's key goes nowhere else.

    `official` is where the vendor is, which an empty URL stands for.
    """
    return url.strip() == "" or (url.strip().startswith("https://") and host_of(url) == host_of(official))
