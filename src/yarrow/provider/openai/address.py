"""Where an OpenAI-compatible server is: its base URL, however the user wrote it, and what its host is known for."""

import re
from urllib.parse import urlsplit

from msgspec import Struct

from yarrow.provider.addresses import is_local

OFFICIAL = "https://api.openai.com/v1"
_OFFICIAL_HOST = "api.openai.com"
_VERSION = re.compile(r"/v\d+\w*(/|$)")


class Address(Struct, frozen=True):
    """A base URL without a slash at its end, and its host."""

    base: str
    host: str

    @property
    def official(self) -> bool:
        """Whether this is the vendor itself."""
        return self.host == _OFFICIAL_HOST

    @property
    def local(self) -> bool:
        """Whether the server is on this machine or in this house."""
        return is_local(self.base)

    @property
    def trusted(self) -> bool:
        """Whether the vendor's key may go there: only to the vendor, and not in the clear."""
        return self.official and self.base.startswith("https://")


def address_of(url: str) -> Address:
    """Return the address for a configured base URL; empty is the vendor's. A path without a version gets `/v1`."""
    base = (url or OFFICIAL).strip().rstrip("/").removesuffix("/chat/completions").rstrip("/")
    try:
        parts = urlsplit(base)
        host = parts.hostname or ""
    except ValueError:
        return Address(base, "")  # the HTTP client says what is wrong with it
    return Address(base if _VERSION.search(parts.path) else f"{base}/v1", host.lower())
