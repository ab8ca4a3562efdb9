"""Where Gemini's API is and how it is spoken to: the base URL and the version, however the user wrote them."""

import re

from msgspec import Struct

from yarrow.provider.addresses import is_official_url
from yarrow.provider.backend_errors import Backend

OFFICIAL_URL = "https://generativelanguage.googleapis.com"
API_VERSION = "v1beta"
"""The version of the API that has tools and thought signatures."""
_VERSION_AT_END = re.compile(r"/(v\d+(?:alpha|beta)?\d*)$")


class GeminiAddress(Struct, frozen=True):
    """What the library is told: `base` has no slash at its end, `version` is the first part of every path."""

    base: str
    version: str


class GeminiEndpoint(Struct, frozen=True):
    """Where the backend is and how it is spoken to."""

    address: GeminiAddress
    backend: Backend
    headers: dict[str, str] = {}


def parse_address(url: str) -> GeminiAddress:
    """Return the address that a configured base URL means; empty is the vendor."""
    base = (url.strip() or OFFICIAL_URL).rstrip("/")
    if found := _VERSION_AT_END.search(base):
        return GeminiAddress(base[: found.start()].rstrip("/"), found[1])
    return GeminiAddress(base, API_VERSION)


def is_official(url: str) -> bool:
    """Tell whether a configured base URL is the vendor's, and not in the clear: the vendor's key goes nowhere else."""
    return is_official_url(url, OFFICIAL_URL)
