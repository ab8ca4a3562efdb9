"""Makes the provider of the `ollama` type, at the address that Ollama's own variable names or the configured one."""

from msgspec.structs import replace

from yarrow.provider.adapter_config import AdapterConfig
from yarrow.provider.api_keys import find_configured_key
from yarrow.provider.base import Provider
from yarrow.provider.http.client import HttpClient
from yarrow.provider.ollama.adapter import OllamaProvider
from yarrow.provider.ollama.address import is_hosted, parse_root


async def build(config: AdapterConfig) -> Provider:
    """Return the provider; the key of `OLLAMA_API_KEY` goes to the hosted Ollama only, and encrypted."""
    settings = config.settings
    if not settings.base_url and config.name == "ollama":
        settings = replace(settings, base_url=config.environment.get("OLLAMA_HOST", "").strip())
    key = await find_configured_key(config.name, settings, config.environment)
    root = parse_root(settings.base_url)
    if not key and is_hosted(root) and root.startswith("https://"):
        key = config.environment.get("OLLAMA_API_KEY", "").strip()
    return OllamaProvider(config.name, config.model, settings=settings, key=key, http=HttpClient(config.environment))
