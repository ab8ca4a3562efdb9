"""Base URL of an OpenAI-compatible server, in any form that the user wrote it."""

import re
from urllib.parse import urlsplit

from msgspec import Struct

from yarrow.provider.addresses import is_local

OFFICIAL_URL = "https://api.openai.com/v1"
CHAT_PATH = "/chat/completions"
_OFFICIAL_HOST = "api.openai.com"
_VERSION = re.compile(r"/v\d+\w*(/|$)")


class OpenAiAddress(Struct, frozen=True):
    """Address of a server."""

    base: str
    """Base URL without a trailing slash."""
    host: str
    query: str = ""
    """Query string of every request, such as `api-version=2024-10-21`."""
    other: str = ""
    """Base URL to try if nothing is found at `base`; empty if there is none."""

    @property
    def chat_url(self) -> str:
        """URL for model calls."""
        return f"{self.base}{CHAT_PATH}{f'?{self.query}' if self.query else ''}"

    @property
    def is_official(self) -> bool:
        """The server is the vendor's own."""
        return self.host == _OFFICIAL_HOST

    @property
    def is_local_server(self) -> bool:
        """The server is on this machine or on the local network."""
        return is_local(self.base)

    @property
    def is_trusted(self) -> bool:
        """The vendor's key may be sent there: only to the vendor, over TLS."""
        return self.is_official and self.base.startswith("https://")


def parse_address(url: str) -> OpenAiAddress:
    """Return the address for a configured base URL; an empty one is the vendor's.

    A URL that ends in `/chat/completions`, or contains a version, is used as written, and a bare host gets `/v1`. Any
    other path is used as written, and with `/v1` if nothing is found there.
    """
    written, _, query = (url or OFFICIAL_URL).strip().partition("?")
    base = written.rstrip("/").removesuffix(CHAT_PATH).rstrip("/")
    try:
        parts = urlsplit(base)
        host = (parts.hostname or "").lower()
    except ValueError:
        return OpenAiAddress(base, "", query)  # the HTTP client reports what is wrong with it
    if written.rstrip("/").endswith(CHAT_PATH) or _VERSION.search(parts.path):
        return OpenAiAddress(base, host, query)
    if not parts.path:
        return OpenAiAddress(f"{base}/v1", host, query)
    return OpenAiAddress(base, host, query, other=f"{base}/v1")
