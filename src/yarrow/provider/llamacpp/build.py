"""Makes the provider of the `llamacpp` type."""

from yarrow.provider.base import Provider
from yarrow.provider.http.client import HttpClient
from yarrow.provider.keys import configured_key
from yarrow.provider.llamacpp.adapter import LlamaCppProvider
from yarrow.provider.plan import Plan


async def build(plan: Plan) -> Provider:
    """Return the provider; without an address it looks for a server on this machine when it is first asked."""
    key = await configured_key(plan.name, plan.settings, plan.environment)
    http = HttpClient(plan.environment)
    return LlamaCppProvider(plan.name, plan.model, settings=plan.settings, key=key, http=http)
