"""Base URL of a server with the messages format, in any form that the user wrote it."""

from yarrow.provider.addresses import is_official_url

OFFICIAL_URL = "https://api.anthropic.com"


def make_base_url(url: str) -> str:
    """Return the base of request paths, including `/v1`, for a configured base URL; an empty one is the vendor's."""
    root = (url.strip() or OFFICIAL_URL).rstrip("/").removesuffix("/messages").rstrip("/")
    return f"{root.removesuffix('/v1').rstrip('/')}/v1"


def is_official(url: str) -> bool:
    """Return whether a configured base URL is the vendor's, over TLS; the vendor's key is sent only there."""
    return is_official_url(url, OFFICIAL_URL)
