"""What an adapter is built from, and what building one is."""

from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from yarrow.config.settings import ProviderSettings
from yarrow.provider.base import Provider


class AdapterConfig(Struct, frozen=True):
    """What an adapter is built from; an empty model leaves the choice to the provider."""

    name: str
    model: str
    settings: ProviderSettings
    environment: Mapping[str, str]


ProviderBuilder = Callable[[AdapterConfig], Awaitable[Provider]]
"""Makes a provider that was asked nothing yet; raises ProviderError and ConfigError."""
