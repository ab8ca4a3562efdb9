"""Cache of the providers of sessions: each is built once, shared, and closed with the service."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from weakref import WeakValueDictionary

from yarrow.agent.model_fallback import FALLBACK_CODES
from yarrow.config.settings import Settings
from yarrow.config.settings_source import find_model_provider
from yarrow.errors import Code, ProviderError
from yarrow.provider import factory
from yarrow.provider.base import CompletionRequest, ListsModels, ModelEntry, ProviderEvent, ProviderInfo
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

    async def get_for_run(self, name: str, model: str) -> ReadyProvider:
        """Return the provider like `get`; if it fails now and a fallback is configured, a stand-in for a named model.

        A request to the stand-in raises the failure, unless the provider has recovered; so a run retries and falls back
        as it does after any failed call.
        """
        name, model = self._fill_defaults(name, model)
        try:
            return await self.get(name, model)
        except ProviderError as error:
            if not (name and model and self._ground.settings.fallback) or error.code not in FALLBACK_CODES:
                raise
        info = ProviderInfo(name, model, has_images=True)
        return ReadyProvider(_StandIn(info, lambda: self.get(name, model)), info, "")

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


class _StandIn:
    """Stand-in for a provider that failed when it was built; each request builds it again."""

    def __init__(self, info: ProviderInfo, build: Callable[[], Awaitable[ReadyProvider]]) -> None:
        self._info = info
        self._build = build

    async def info(self) -> ProviderInfo:
        """Return the capabilities that most models have."""
        return self._info

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[ProviderEvent]:
        """Stream one answer of the provider; raises the failure if it cannot be built."""
        built = await self._build()
        async with aclosing(built.provider.stream(request)) as events:
            async for event in events:
                yield event

    async def close(self) -> None:
        """Do nothing: the cache closes the provider."""
