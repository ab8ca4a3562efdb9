"""Base URL of an OpenAI-compatible server, in whatever form the user wrote it."""

import re
from urllib.parse import urlsplit

from msgspec import Struct

from yarrow.provider.addresses import is_local

OFFICIAL_URL = "https://api.openai.com/v1"
CHAT_PATH = "/chat/completions"
_OFFICIAL_HOST = "api.openai.com"
_VERSION = re.compile(r"/v\d+\w*(/|$)")


class OpenAiAddress(Struct, frozen=True):
    """Where a server is."""

    base: str
    """Base URL without a slash at its end."""
    host: str
    query: str = ""
    """Query string of every request, such as `api-version=2024-10-21`."""
    other: str = ""
    """Base URL to try when nothing is found at `base`; empty if there is none."""

    @property
    def chat_url(self) -> str:
        """URL of a prompt."""
        return f"{self.base}{CHAT_PATH}{f'?{self.query}' if self.query else ''}"

    @property
    def is_official(self) -> bool:
        """Whether this is the vendor itself."""
        return self.host == _OFFICIAL_HOST

    @property
    def is_local_server(self) -> bool:
        """Whether the server is on this machine or on the local network."""
        return is_local(self.base)

    @property
    def is_trusted(self) -> bool:
        """Whether the vendor's key may go there: only to the vendor, over TLS."""
        return self.is_official and self.base.startswith("https://")


def parse_address(url: str) -> OpenAiAddress:
    """Return the address for a configured base URL; empty is the vendor's.

    A URL that ends in `/chat/completions`, or holds a version, is used as written, and a bare host gets `/v1`. Any
    other path is used as written, and with `/v1` where nothing is found there.
    """
    written, _, query = (url or OFFICIAL_URL).strip().partition("?")
    base = written.rstrip("/").removesuffix(CHAT_PATH).rstrip("/")
    try:
        parts = urlsplit(base)
        host = (parts.hostname or "").lower()
    except ValueError:
        return OpenAiAddress(base, "", query)  # the HTTP client says what is wrong with it
    if written.rstrip("/").endswith(CHAT_PATH) or _VERSION.search(parts.path):
        return OpenAiAddress(base, host, query)
    if not parts.path:
        return OpenAiAddress(f"{base}/v1", host, query)
    return OpenAiAddress(base, host, query, other=f"{base}/v1")
