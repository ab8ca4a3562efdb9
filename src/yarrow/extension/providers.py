"""Adapter for providers of extensions: they run in the extension's thread, and their events are validated."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, contextmanager, suppress
from copy import deepcopy
from inspect import isawaitable
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from yarrow.errors import Code, ProviderError
from yarrow.extension.extension_host import ExtensionError, ExtensionHost
from yarrow.extension.tools import copy_plain
from yarrow.message import ToolCall
from yarrow.provider.base import (
    CallPiece,
    CompletionRequest,
    ListsModels,
    ModelEntry,
    OpaquePiece,
    Provider,
    ProviderEvent,
    ProviderInfo,
    StopPiece,
    TextPiece,
    ThinkingPiece,
    UsagePiece,
)
from yarrow.provider.factory import AdapterConfig, ProviderBuilder
from yarrow.provider.stream_framing import is_json_object

T = TypeVar("T")

MAX_SETUP_SECONDS = 300.0
"""Timeout in seconds for creating a provider, and for its `info`: it may have to load a model."""
DEFAULT_IDLE_SECONDS = 600.0
"""Default idle timeout of an answer in seconds if `idleTimeout` is not set; local models may need minutes."""
MAX_PROVIDER_CLOSE_SECONDS = 2.0
"""Timeout in seconds for releasing a provider's resources; after that it is abandoned."""

ProviderFactory = Callable[[AdapterConfig], "Provider | Awaitable[Provider]"]
"""Creates a provider; it must not have been used yet."""


def host_provider_factory(host: ExtensionHost, factory: ProviderFactory) -> ProviderBuilder:
    """Return a builder that runs `factory` in the extension's thread. The builder raises `ProviderError`."""

    async def build(plan: AdapterConfig) -> Provider:
        async def work() -> tuple[Provider, bool]:
            made: Any = factory(replace(plan, settings=deepcopy(plan.settings), environment=dict(plan.environment)))
            if isawaitable(made):
                made = await made
            missing = [name for name in ("info", "stream", "close") if not callable(getattr(made, name, None))]
            if missing:
                raise TypeError(f"a provider needs info, stream and close; {type(made).__name__} has no {missing[0]}")
            return made, isinstance(made, ListsModels)

        with _translate_errors(plan.name):
            made, lists = await host.call(work, MAX_SETUP_SECONDS)
        return HostedModelLister(host, plan, made) if lists else HostedProvider(host, plan, made)

    return build


class HostedProvider:
    """A provider of an extension. Its failures and invalid events become a `ProviderError` that names it."""

    def __init__(self, host: ExtensionHost, config: AdapterConfig, provider: Provider) -> None:
        self._host = host
        self._config = config
        self._provider = provider

    async def info(self) -> ProviderInfo:
        """Return the provider's capabilities under its registered id, by which services store providers."""

        async def work() -> ProviderInfo:
            return copy_plain(await self._provider.info(), ProviderInfo)

        info = await self._call_host(work)
        return replace(info, name=self._config.name, model=info.model or self._config.model)

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[ProviderEvent]:
        """Stream one answer; closing this closes the extension's stream, see `ExtensionHost.stream`."""

        async def checked() -> AsyncGenerator[ProviderEvent]:
            # All requests share the schemas, and the extension could modify them.
            source = self._provider.stream(replace(request, tools=deepcopy(request.tools)))
            async with aclosing(source):
                async for item in source:
                    event = _check_event(item)
                    if event is not None:
                        yield event
                    if isinstance(event, StopPiece):
                        return

        limit = self._idle_limit(request)
        with _translate_errors(self._config.name):
            async with aclosing(self._host.stream(checked)) as events:
                while (event := await self._read_event(events, limit)) is not None:
                    yield event

    async def close(self) -> None:
        """Release the provider's resources, within `MAX_PROVIDER_CLOSE_SECONDS`."""
        with suppress(ProviderError, ExtensionError):
            await self._host.call(self._provider.close, MAX_PROVIDER_CLOSE_SECONDS)

    def _idle_limit(self, request: CompletionRequest) -> float | None:
        for seconds in (request.stream_opts.idle_timeout, self._config.settings.idle_timeout):
            if seconds is not None:
                return seconds or None
        return DEFAULT_IDLE_SECONDS

    async def _read_event(self, events: AsyncGenerator[ProviderEvent], limit: float | None) -> ProviderEvent | None:
        try:
            async with asyncio.timeout(limit):
                return await anext(events, None)
        except TimeoutError:
            stalled = f"the provider {self._config.name} of an extension sent nothing for {limit:g} s"
            raise ProviderError(Code.STREAM_STALLED, stalled, retryable=True) from None

    async def _call_host(self, work: Callable[[], Awaitable[T]]) -> T:
        with _translate_errors(self._config.name):
            return await self._host.call(work, MAX_SETUP_SECONDS)


class HostedModelLister(HostedProvider):
    """A hosted provider that can list its models."""

    async def list_models(self) -> list[ModelEntry]:
        """Return the models in the provider's order. Raises `ProviderError`."""

        async def work() -> list[ModelEntry]:
            listed = await cast("ListsModels", self._provider).list_models()
            return [copy_plain(entry, ModelEntry) for entry in listed]

        return await self._call_host(work)


def _check_event(item: object) -> ProviderEvent | None:
    """Return a validated event; None if it is empty. Raises TypeError and ValueError."""
    event = copy_plain(item, TextPiece, ThinkingPiece, CallPiece, OpaquePiece, UsagePiece, StopPiece)
    if isinstance(event, CallPiece):
        return CallPiece(_check_call(event.call))
    if isinstance(event, TextPiece | ThinkingPiece) and not event.text:
        return None
    return event


def _check_call(call: ToolCall) -> ToolCall:
    """Return the call with an id, and with arguments that are a JSON object or marked as invalid."""
    if not call.name:
        raise ValueError("a tool call has no name")
    if not is_json_object(call.arguments):
        call = replace(call, arguments="{}", invalid_arguments=call.invalid_arguments or call.arguments)
    if call.id:
        return call
    from yarrow.provider.tool_calls import new_call_id

    return replace(call, id=new_call_id())


@contextmanager
def _translate_errors(name: str) -> Generator[None]:
    """Convert errors of an extension to `ProviderError`."""
    try:
        yield
    except ExtensionError as error:
        raise ProviderError(Code.SERVER_ERROR, f"the provider {name} of an extension failed: {error.message}") from None
