"""Where a server of the messages format is: its base URL, however the user wrote it."""

from yarrow.provider.addresses import is_official_url

OFFICIAL_URL = "https://api.anthropic.com"


def make_base_url(url: str) -> str:
    """Return the address that paths are put behind, `/v1` included, for a configured base URL; empty is the vendor."""
    root = (url.strip() or OFFICIAL_URL).rstrip("/").removesuffix("/messages").rstrip("/")
    return f"{root.removesuffix('/v1').rstrip('/')}/v1"


def is_official(url: str) -> bool:
    """Tell whether a configured base URL is the vendor's, and not in the clear: the vendor's key goes nowhere else."""
    return is_official_url(url, OFFICIAL_URL)
