"""Makes the provider of the `openai` type: its address, and the key that belongs to that address."""

from msgspec.structs import replace

from yarrow.provider.adapter_config import AdapterConfig
from yarrow.provider.api_keys import find_configured_key, find_vendor_key, has_credential_header, make_missing_key_error
from yarrow.provider.base import Provider
from yarrow.provider.http.client import HttpClient
from yarrow.provider.openai.adapter import OpenAiProvider
from yarrow.provider.openai.address import parse_address


async def build(config: AdapterConfig) -> Provider:
    """Return the provider; raises PROVIDER_SETUP when OpenAI itself is meant and there is no key."""
    settings = config.settings
    key = await find_configured_key(config.name, settings, config.environment)
    # The variable names a server and the key beside it is for that server: a convention of many programs.
    elsewhere = config.environment.get("OPENAI_BASE_URL", "").strip()
    follows = bool(elsewhere) and config.name == "openai" and not settings.base_url
    if follows:
        settings = replace(settings, base_url=elsewhere)
    address = parse_address(settings.base_url)
    if not key and (follows or address.is_trusted):
        key, _ = find_vendor_key(config.environment)
    if not key and address.is_official and not has_credential_header(settings):
        raise make_missing_key_error(config.name, "OPENAI_API_KEY")
    return OpenAiProvider(config.name, config.model, settings=settings, key=key, http=HttpClient(config.environment))
