"""Address of Gemini's API: base URL and version, in any form that the user wrote them."""

import re

from msgspec import Struct

from yarrow.provider.addresses import is_official_url
from yarrow.provider.backend_errors import Backend

OFFICIAL_URL = "https://generativelanguage.googleapis.com"
API_VERSION = "v1beta"
"""API version that supports tools and thought signatures."""
_VERSION_AT_END = re.compile(r"/(v\d+(?:alpha|beta)?\d*)$")


class GeminiAddress(Struct, frozen=True):
    """Address for the library: `base` has no trailing slash, `version` is the first part of every path."""

    base: str
    version: str


class GeminiEndpoint(Struct, frozen=True):
    """Address of the backend, its key and the configured headers."""

    address: GeminiAddress
    backend: Backend
    headers: dict[str, str] = {}


def parse_address(url: str) -> GeminiAddress:
    """Return the address for a configured base URL; an empty one is the vendor's."""
    base = (url.strip() or OFFICIAL_URL).rstrip("/")
    if found := _VERSION_AT_END.search(base):
        return GeminiAddress(base[: found.start()].rstrip("/"), found[1])
    return GeminiAddress(base, API_VERSION)


def is_official(url: str) -> bool:
    """Return whether a configured base URL is the vendor's, over TLS; the vendor's key is sent only there."""
    return is_official_url(url, OFFICIAL_URL)
