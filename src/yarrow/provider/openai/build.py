"""Makes the provider of the `openai` type: its address, and the key that belongs to that address."""

from msgspec.structs import replace

from yarrow.provider.base import Provider
from yarrow.provider.http.client import HttpClient
from yarrow.provider.keys import brings_credentials, configured_key, no_key, vendor_key
from yarrow.provider.openai.adapter import OpenAiProvider
from yarrow.provider.openai.address import address_of
from yarrow.provider.plan import Plan


async def build(plan: Plan) -> Provider:
    """Return the provider; raises PROVIDER_SETUP when OpenAI itself is meant and there is no key."""
    settings = plan.settings
    key = await configured_key(plan.name, settings, plan.environment)
    # The variable names a server and the key beside it is for that server: a convention of many programs.
    elsewhere = plan.environment.get("OPENAI_BASE_URL", "").strip()
    follows = bool(elsewhere) and plan.name == "openai" and not settings.base_url
    if follows:
        settings = replace(settings, base_url=elsewhere)
    address = address_of(settings.base_url)
    if not key and (follows or address.trusted):
        key, _ = vendor_key(plan.environment)
    if not key and address.official and not brings_credentials(settings):
        raise no_key(plan.name, "OPENAI_API_KEY")
    return OpenAiProvider(plan.name, plan.model, settings=settings, key=key, http=HttpClient(plan.environment))
