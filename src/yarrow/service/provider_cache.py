"""Cache of the providers of sessions: each is built once, shared, and closed with the service."""

import asyncio
from collections.abc import Mapping
from weakref import WeakValueDictionary

from yarrow.config.settings import Settings
from yarrow.config.settings_source import find_model_provider
from yarrow.errors import Code, ProviderError
from yarrow.provider import factory
from yarrow.provider.base import ListsModels, ModelEntry
from yarrow.provider.factory import ProviderBuilder, ProviderContext, ReadyProvider


class ProviderCache:
    """Providers built on first use; sessions with the same provider and model share one."""

    def __init__(
        self, settings: Settings, environment: Mapping[str, str], added: Mapping[str, ProviderBuilder] | None = None
    ) -> None:
        self._ground = ProviderContext(settings, environment, added or {})
        self._built: dict[tuple[str, str], ReadyProvider] = {}
        # A lock exists while a task waits for its provider.
        self._building: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def get(self, name: str, model: str) -> ReadyProvider:
        """Return the provider `name` with `model`; empty means the configured one, else the first detected.

        Raises `ProviderError` and `ConfigError`.
        """
        name, model = self._fill_defaults(name, model)
        async with self._building.setdefault((name, model), asyncio.Lock()):
            known = self._built.get((name, model))
            if known is None:
                known = await factory.build_provider(name, model, self._ground)
                for key in ((name, model), (known.info.name, known.info.model)):
                    self._built.setdefault(key, known)
            return known

    async def list_models(self, name: str) -> tuple[str, list[ModelEntry]]:
        """Return a provider's id and its models without duplicates; it need not be able to answer a prompt.

        A name that cannot be printed on one line, and therefore never be entered, is omitted.
        """
        name, model = self._fill_defaults(name, "")
        created = await factory.create_provider(name, model, self._ground)
        try:
            if not isinstance(created.provider, ListsModels):
                raise ProviderError(Code.UNSUPPORTED_FEATURE, f"{created.name} cannot list its models")
            listed = await created.provider.list_models()
            return created.name, list({one.name: one for one in listed if one.name.isprintable()}.values())
        finally:
            await created.provider.close()

    async def close(self) -> None:
        """Close every provider."""
        built = {id(one.provider): one.provider for one in self._built.values()}
        self._built.clear()
        for provider in built.values():
            await provider.close()

    def _fill_defaults(self, name: str, model: str) -> tuple[str, str]:
        """Fill in the configured values; a configured model belongs only to the configured provider."""
        configured = self._ground.settings
        name = name or configured.provider
        return name, model or (configured.model if name in ("", find_model_provider(configured)) else "")
