"""Makes the provider of the `messages` type; a vendor's key goes to the vendor only."""

from yarrow.provider.adapter_config import AdapterConfig
from yarrow.provider.api_keys import find_configured_key, require_vendor_key
from yarrow.provider.base import Provider
from yarrow.provider.http.client import HttpClient
from yarrow.provider.messages.adapter import MessagesProvider
from yarrow.provider.messages.address import is_official


async def build(config: AdapterConfig) -> Provider:
    """Return the provider; raises PROVIDER_SETUP when Anthropic itself is meant and there is no key."""
    settings = config.settings
    key = await find_configured_key(config.name, settings, config.environment)
    if not key and is_official(settings.base_url):
        key = require_vendor_key(config, "messages", "ANTHROPIC_API_KEY")
    http = HttpClient(config.environment)
    provider = MessagesProvider(config.name, config.model, settings=settings, key=key, http=http)
    provider.thinking_style = settings.thinking_style
    return provider
