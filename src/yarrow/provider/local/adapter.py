"""Adapter for the model that runs within Yarrow."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from yarrow.errors import Code, ProviderError
from yarrow.provider.base import AdapterConfig, CompletionRequest, ModelEntry, Provider, ProviderEvent, ProviderInfo
from yarrow.provider.http.client import HttpClient
from yarrow.provider.llamacpp.adapter import LlamaCppProvider
from yarrow.provider.local.model_files import (
    STARTER_MAX_TOKENS,
    find_gguf,
    find_unavailable_reason,
    is_starter,
    list_installed,
)
from yarrow.provider.local.server_process import LocalServer, LocalSettings


class RunningServer(Protocol):
    """A model server in its own process."""

    @property
    def base_url(self) -> str:
        """Base URL of the server."""
        ...

    @property
    def key(self) -> str:
        """Key that the server requires; empty for none."""
        ...

    async def close(self) -> None:
        """Stop the process."""
        ...


class LocalProvider:
    """Provider that owns the local server and the provider connected to it.

    `start` starts a server, `make_provider` builds the provider for its address and key, `models` are the available
    names.
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
        """Start the server and ask it for the model's capabilities."""
        info = await (await self._get_provider()).info()
        return replace(info, reads_only=is_starter(info.model))

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[ProviderEvent]:
        """Stream one answer. If the server dies, the next request starts it again."""
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
        """Return the installed models, without loading any."""
        return [ModelEntry(name) for name in self._models]

    async def close(self) -> None:
        """Release the connections and stop the server."""
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
    """Return the provider; it finds and loads the model at the first request."""
    settings = config.settings

    async def start() -> LocalServer:
        if reason := find_unavailable_reason():
            # Checked before the model is looked up, since it could not run.
            raise ProviderError(Code.PROVIDER_SETUP, reason)
        path = _find_model(config)
        return await LocalServer.start(LocalSettings(str(path), settings.context_window, settings.chat_template))

    def speak(base_url: str, key: str) -> Provider:
        # The library reduces a window larger than the trained one, so only the server knows it.
        model = _find_model(config).name
        limit = settings.max_tokens or (STARTER_MAX_TOKENS if is_starter(model) else 0)
        there = replace(settings, base_url=base_url, context_window=0, max_tokens=limit)
        return LlamaCppProvider(config.name, model, settings=there, key=key, http=HttpClient())

    names = (*(Path(path).name for path in settings.models), *list_installed(config.environment))
    return LocalProvider(start, speak, names)


def _find_model(config: AdapterConfig) -> Path:
    """Return the file of the named model, else of the first one configured or installed."""
    wanted = (config.model, f"{config.model}.gguf")
    named = [path for path in config.settings.models if config.model and Path(path).name in wanted]
    names = named or (
        [config.model] if config.model else [*config.settings.models, *list_installed(config.environment)]
    )
    if not names:
        sentence = "no local model found: run `yarrow models pull`, or set providers.local.models to GGUF files"
        raise ProviderError(Code.PROVIDER_SETUP, sentence)
    return find_gguf(names[0], config.environment)
