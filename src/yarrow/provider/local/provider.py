"""The provider for a model on this machine: starts its server when it is first needed, ends it when closed."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Protocol

from msgspec.structs import replace

from yarrow.errors import Code, ProviderError
from yarrow.provider.base import CompletionRequest, ModelEntry, Provider, ProviderEvent, ProviderInfo
from yarrow.provider.local.model_files import is_starter


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
