"""Makes the provider of the `gemini` type; a vendor's key goes to the vendor only."""

from yarrow.provider.base import Provider
from yarrow.provider.gemini.adapter import GeminiProvider
from yarrow.provider.gemini.address import is_official
from yarrow.provider.http.client import HttpClient
from yarrow.provider.keys import configured_key, needed_key
from yarrow.provider.plan import Plan


async def build(plan: Plan) -> Provider:
    """Return the provider; raises PROVIDER_SETUP when Google itself is meant and there is no key."""
    settings = plan.settings
    key = await configured_key(plan.name, settings, plan.environment)
    if not key and is_official(settings.base_url):
        key = needed_key(plan, "gemini", "GEMINI_API_KEY")
    http = HttpClient(plan.environment)
    return GeminiProvider(plan.name, plan.model, settings=settings, key=key, http=http)
