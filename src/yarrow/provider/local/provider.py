"""Provider for the model that runs within Yarrow."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from yarrow.errors import Code, ProviderError
from yarrow.provider.adapter_config import AdapterConfig
from yarrow.provider.base import CompletionRequest, ModelEntry, Provider, ProviderEvent, ProviderInfo
from yarrow.provider.http.client import HttpClient
from yarrow.provider.llamacpp.adapter import LlamaCppProvider
from yarrow.provider.local.availability import find_unavailable_reason
from yarrow.provider.local.model_files import STARTER_MAX_TOKENS, find_gguf, is_starter, list_installed
from yarrow.provider.local.server import LocalServer, LocalSettings


class RunningServer(Protocol):
    """A model server in a process of its own."""

    @property
    def base_url(self) -> str:
        """Where it answers."""
        ...

    @property
    def key(self) -> str:
        """What it wants to be shown; empty for nothing."""
        ...

    async def close(self) -> None:
        """End the process."""
        ...


class LocalProvider:
    """Owns the server and the provider that speaks with it.

    `start` brings up a server, `speak` makes the provider for its address and key,
    `models` are the names on offer.
    """

    def __init__(
        self,
        start: Callable[[], Awaitable[RunningServer]],
        make_provider: Callable[[str, str], Provider],
        models: Sequence[str],
    ) -> None:
        self._start = start
        self._make_provider = make_provider
        self._models = models
        self._starting = asyncio.Lock()
        self._server: RunningServer | None = None
        self._inner: Provider | None = None

    async def info(self) -> ProviderInfo:
        """Start the server and ask it what it can do."""
        info = await (await self._get_provider()).info()
        return replace(info, reads_only=is_starter(info.model))

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[ProviderEvent]:
        """Stream one answer. A server that died is started again for the next request."""
        inner = await self._get_provider()
        try:
            async with aclosing(inner.stream(request)) as events:
                async for event in events:
                    yield event
        except ProviderError as error:
            if error.code is Code.UNREACHABLE:
                await self.close()
            raise

    async def list_models(self) -> list[ModelEntry]:
        """Return the models that are installed; none is loaded for it."""
        return [ModelEntry(name) for name in self._models]

    async def close(self) -> None:
        """Give back the connections and end the server."""
        inner, self._inner = self._inner, None
        server, self._server = self._server, None
        try:
            if inner is not None:
                await inner.close()
        finally:
            if server is not None:
                await server.close()

    async def _get_provider(self) -> Provider:
        async with self._starting:
            if self._inner is None:
                self._server = await self._start()
                self._inner = self._make_provider(self._server.base_url, self._server.key)
            return self._inner


async def build(config: AdapterConfig) -> Provider:
    """Return the provider; the model is looked for and loaded when it is first asked."""
    settings = config.settings

    async def start() -> LocalServer:
        if lacks := find_unavailable_reason():
            # Before a model is asked for, which could not be run.
            raise ProviderError(Code.PROVIDER_SETUP, lacks)
        path = _find_model(config)
        return await LocalServer.start(LocalSettings(str(path), settings.context_window, settings.chat_template))

    def speak(base_url: str, key: str) -> Provider:
        # The library lowers a window that is larger than the model was trained for: only the server knows it.
        model = _find_model(config).name
        limit = settings.max_tokens or (STARTER_MAX_TOKENS if is_starter(model) else 0)
        there = replace(settings, base_url=base_url, context_window=0, max_tokens=limit)
        return LlamaCppProvider(config.name, model, settings=there, key=key, http=HttpClient())

    names = (*(Path(path).name for path in settings.models), *list_installed(config.environment))
    return LocalProvider(start, speak, names)


def _find_model(config: AdapterConfig) -> Path:
    """Return the file of the model that is named, else of the first that is configured or installed."""
    wanted = (config.model, f"{config.model}.gguf")
    named = [path for path in config.settings.models if config.model and Path(path).name in wanted]
    names = named or (
        [config.model] if config.model else [*config.settings.models, *list_installed(config.environment)]
    )
    if not names:
        sentence = "there is no local model: run `yarrow models pull`, or set providers.local.models to GGUF files"
        raise ProviderError(Code.PROVIDER_SETUP, sentence)
    return find_gguf(names[0], config.environment)
