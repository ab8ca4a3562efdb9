"""Where Gemini's API is and how it is spoken to: the base URL and the version, however the user wrote them."""

import re

from msgspec import Struct

from yarrow.provider.addresses import is_vendors
from yarrow.provider.failures import Speaker

OFFICIAL = "https://generativelanguage.googleapis.com"
VERSION = "v1beta"
"""The version of the API that has tools and thought signatures."""
_VERSION_AT_END = re.compile(r"/(v\d+(?:alpha|beta)?\d*)$")


class Address(Struct, frozen=True):
    """What the library is told: `base` has no slash at its end, `version` is the first part of every path."""

    base: str
    version: str


class Endpoint(Struct, frozen=True):
    """Where the backend is and how it is spoken to."""

    address: Address
    speaker: Speaker
    headers: dict[str, str] = {}


def address_of(url: str) -> Address:
    """Return the address that a configured base URL means; empty is the vendor."""
    base = (url.strip() or OFFICIAL).rstrip("/")
    if found := _VERSION_AT_END.search(base):
        return Address(base[: found.start()].rstrip("/"), found[1])
    return Address(base, VERSION)


def is_official(url: str) -> bool:
    """Tell whether a configured base URL is the vendor's, and not in the clear: the vendor's key goes nowhere else."""
    return is_vendors(url, OFFICIAL)
