"""The providers that sessions use: each is built once, shared, and closed with the service."""

import asyncio
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

from msgspec import Struct

from yarrow.provider.base import Provider, ProviderInfo


class Built(Struct, frozen=True):
    """A provider ready for use. `reason` says in one sentence why it was chosen; empty when it was named."""

    name: str
    provider: Provider
    info: ProviderInfo
    reason: str = ""


Build = Callable[[str, str], Awaitable[Built]]
"""Takes a provider's id and a model, each may be empty for the one in force. Raises `ProviderError`, `ConfigError`."""


class Providers:
    """Builds on first use; two sessions that ask for the same get the same."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._built: dict[tuple[str, str], Built] = {}
        # A lock lives as long as somebody waits for the provider it is for.
        self._building: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def get(self, name: str, model: str) -> Built:
        """Return the provider `name` with `model`; empty means the configured or detected one."""
        async with self._building.setdefault((name, model), asyncio.Lock()):
            known = self._built.get((name, model))
            if known is None:
                known = await self._build(name, model)
                for key in ((name, model), (known.name, known.info.model)):
                    self._built[key] = known
            return known

    async def close(self) -> None:
        """Close every provider."""
        built = {id(one.provider): one.provider for one in self._built.values()}
        self._built.clear()
        for provider in built.values():
            await provider.close()
