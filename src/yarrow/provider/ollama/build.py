"""Makes the provider of the `ollama` type, at the address that Ollama's own variable names or the configured one."""

from msgspec.structs import replace

from yarrow.provider.base import Provider
from yarrow.provider.http.client import HttpClient
from yarrow.provider.keys import configured_key
from yarrow.provider.ollama.adapter import OllamaProvider
from yarrow.provider.ollama.address import is_hosted, root_of
from yarrow.provider.plan import Plan


async def build(plan: Plan) -> Provider:
    """Return the provider; the key of `OLLAMA_API_KEY` goes to the hosted Ollama only, and encrypted."""
    settings = plan.settings
    if not settings.base_url and plan.name == "ollama":
        settings = replace(settings, base_url=plan.environment.get("OLLAMA_HOST", "").strip())
    key = await configured_key(plan.name, settings, plan.environment)
    root = root_of(settings.base_url)
    if not key and is_hosted(root) and root.startswith("https://"):
        key = plan.environment.get("OLLAMA_API_KEY", "").strip()
    return OllamaProvider(plan.name, plan.model, settings=settings, key=key, http=HttpClient(plan.environment))
