"""Makes the provider of the `llamacpp` type."""

from yarrow.provider.adapter_config import AdapterConfig
from yarrow.provider.api_keys import find_configured_key
from yarrow.provider.base import Provider
from yarrow.provider.http.client import HttpClient
from yarrow.provider.llamacpp.adapter import LlamaCppProvider


async def build(config: AdapterConfig) -> Provider:
    """Return the provider; without an address it looks for a server on this machine when it is first asked."""
    key = await find_configured_key(config.name, config.settings, config.environment)
    http = HttpClient(config.environment)
    return LlamaCppProvider(config.name, config.model, settings=config.settings, key=key, http=http)
