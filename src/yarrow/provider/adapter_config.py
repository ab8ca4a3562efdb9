"""Configuration that an adapter is built from, and the type of its builder."""

from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from yarrow.config.settings import ProviderSettings
from yarrow.provider.base import Provider


class AdapterConfig(Struct, frozen=True):
    """Configuration of one adapter; with an empty model the provider chooses."""

    name: str
    model: str
    settings: ProviderSettings
    environment: Mapping[str, str]


ProviderBuilder = Callable[[AdapterConfig], Awaitable[Provider]]
"""Builds a provider without sending it a request; raises ProviderError and ConfigError."""
