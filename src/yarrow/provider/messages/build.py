"""Makes the provider of the `messages` type; a vendor's key goes to the vendor only."""

from yarrow.provider.base import Provider
from yarrow.provider.http.client import HttpClient
from yarrow.provider.keys import configured_key, needed_key
from yarrow.provider.messages.adapter import MessagesProvider
from yarrow.provider.messages.address import is_official
from yarrow.provider.plan import Plan


async def build(plan: Plan) -> Provider:
    """Return the provider; raises PROVIDER_SETUP when Anthropic itself is meant and there is no key."""
    settings = plan.settings
    key = await configured_key(plan.name, settings, plan.environment)
    if not key and is_official(settings.base_url):
        key = needed_key(plan, "messages", "ANTHROPIC_API_KEY")
    http = HttpClient(plan.environment)
    provider = MessagesProvider(plan.name, plan.model, settings=settings, key=key, http=http)
    provider.thinking_style = settings.thinking_style
    return provider
