"""Providers of extensions: they answer as ours do, and whatever goes wrong is a `ProviderError` that names them."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import pytest
from extending import extended, soon
from msgspec.structs import replace

from yarrow.config.settings import ProviderSettings, Settings
from yarrow.errors import Code, ConfigError, ProviderError
from yarrow.extension import providers
from yarrow.message import StopReason, ToolCall, ToolSpec, Usage
from yarrow.provider.base import (
    CallPiece,
    CompletionRequest,
    ListsModels,
    ModelEntry,
    OpaquePiece,
    Provider,
    ProviderInfo,
    StopPiece,
    StreamOptions,
    TextPiece,
    ThinkingPiece,
    UsagePiece,
)
from yarrow.provider.factory import AdapterConfig, ProviderContext, build_provider

REQUEST = CompletionRequest("m", (), (ToolSpec("t", "", {"type": "object"}),))
STOP = StopPiece(StopReason.END_TURN)


class Fake:
    """Answers with what it is given."""

    def __init__(self, *items: Any, info: Any = None) -> None:
        self.items = items
        self.told = ProviderInfo("fake", "model") if info is None else info
        self.closed = threading.Event()

    async def info(self) -> Any:
        if isinstance(self.told, BaseException):
            raise self.told
        return self.told

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Any]:
        request.tools[0].parameters.clear()
        for item in self.items:
            if isinstance(item, BaseException):
                raise item
            yield item

    async def close(self) -> None:
        self.closed.set()


class Lists(Fake):
    """One that lists its models."""

    async def list_models(self) -> Any:
        return self.items


async def built(factory: Callable[[AdapterConfig], Any], work: Callable[[Provider, ProviderInfo], Any]) -> Any:
    """Return the result of `work` for the provider that an extension's factory creates."""
    async with extended(lambda yarrow: yarrow.provider("mine", factory)) as added:
        made = await build_provider("mine", "wanted", ProviderContext(Settings(), {"KEY": "k"}, added.providers))
        return await work(made.provider, made.info)


async def streamed(provider: Provider, _: ProviderInfo) -> list[Any]:
    async with aclosing(provider.stream(REQUEST)) as events:
        return [event async for event in events]


async def failure_of(
    factory: Callable[[AdapterConfig], Any], work: Callable[[Provider, ProviderInfo], Any] = streamed
) -> str:
    with pytest.raises(ProviderError) as caught:
        await built(factory, work)
    assert caught.value.code is Code.SERVER_ERROR
    assert caught.value.message.startswith("the provider mine of an extension failed: ")
    assert len(caught.value.message) < 600
    return caught.value.message


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_provider_streams_every_kind_of_event(is_async: bool) -> None:
    events = [
        ThinkingPiece("hm"),
        TextPiece("a"),
        CallPiece(ToolCall("1", "t", '{"x": 1}')),
        OpaquePiece("{}"),
        UsagePiece(Usage(1, 2)),
        STOP,
    ]
    plans: list[AdapterConfig] = []

    def make(plan: AdapterConfig) -> Any:
        plans.append(plan)
        return Fake(*events)

    async def make_later(plan: AdapterConfig) -> Any:
        return make(plan)

    assert await built(make_later if is_async else make, streamed) == events
    assert [(plan.name, plan.model, plan.environment) for plan in plans] == [("mine", "wanted", {"KEY": "k"})]


async def test_empty_pieces_and_pieces_after_the_stop_are_omitted() -> None:
    assert await built(lambda _: Fake(TextPiece(""), TextPiece("a"), STOP, TextPiece("b")), streamed) == [
        TextPiece("a"),
        STOP,
    ]


async def test_a_call_gets_an_id_and_invalid_arguments_are_reported() -> None:
    events = await built(
        lambda _: Fake(CallPiece(ToolCall("", "t", "{")), CallPiece(ToolCall("", "t", "[]"))), streamed
    )
    first, second = (event.call for event in events)
    assert (first.arguments, first.invalid_arguments, second.invalid_arguments) == ("{}", "{", "[]")
    assert first.id
    assert first.id != second.id


async def test_a_provider_receives_copies_of_request_and_settings() -> None:
    settings = ProviderSettings(extra_body={"a": 1})

    def spoil(plan: AdapterConfig) -> Any:
        plan.settings.extra_body.clear()
        return Fake(STOP)

    async with extended(lambda yarrow: yarrow.provider("mine", spoil)) as added:
        ground = ProviderContext(Settings(providers={"mine": settings}), {}, added.providers)
        made = await build_provider("mine", "m", ground)
        await streamed(made.provider, made.info)
    assert settings.extra_body == {"a": 1}
    assert REQUEST.tools[0].parameters == {"type": "object"}


async def test_a_provider_is_known_by_its_registered_name() -> None:
    async def info(_: Provider, told: ProviderInfo) -> ProviderInfo:
        return told

    told = ProviderInfo("openai", "", context_window=5)
    assert await built(lambda _: Fake(info=told), info) == ProviderInfo("mine", "wanted", context_window=5)


@pytest.mark.parametrize(
    ("item", "told"),
    [
        ("text", "str is not one of TextPiece"),
        (TextPiece(None), "TextPiece: Expected `str`, got `null`"),  # pyright: ignore[reportArgumentType]
        (TextPiece("\ud800"), "TextPiece: "),
        (StopPiece("never"), "StopPiece: Invalid enum value 'never'"),  # pyright: ignore[reportArgumentType]
        (UsagePiece({"input": "x"}), "UsagePiece: Expected `int`"),  # pyright: ignore[reportArgumentType]
        (CallPiece(ToolCall("1", "")), "a tool call has no name"),
        (ValueError("bad"), "ValueError: bad"),
        (SystemExit(1), "SystemExit: 1"),
        (RuntimeError("x" * 1_000_000), "RuntimeError: xxx"),
        (asyncio.CancelledError(), "CancelledError"),
    ],
)
async def test_invalid_events_and_exceptions_end_the_stream(item: Any, told: str) -> None:
    seen: list[Any] = []

    async def read(provider: Provider, _: ProviderInfo) -> None:
        async with aclosing(provider.stream(REQUEST)) as events:
            async for event in events:
                seen.append(event)  # noqa: PERF401 - what comes before the failure counts

    assert told in await failure_of(lambda _: Fake(TextPiece("a"), item), read)
    assert seen == [TextPiece("a")]


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (None, "NoneType has no info"),
        (object(), "object has no info"),
        (Fake(info="text"), "str is not one of ProviderInfo"),
        (Fake(info=ProviderInfo("n", 5)), "ProviderInfo: Expected `str`"),  # pyright: ignore[reportArgumentType]
        (Fake(info=ZeroDivisionError()), "ZeroDivisionError"),
    ],
)
async def test_an_invalid_provider_is_reported(made: Any, told: str) -> None:
    assert told in await failure_of(lambda _: made)


async def test_provider_errors_are_passed_on_unchanged() -> None:
    error = ProviderError(Code.RATE_LIMIT, "wait", retryable=True, status=429)
    error.retry_after = 3.0
    with pytest.raises(ProviderError) as caught:
        await built(lambda _: Fake(TextPiece("a"), error), streamed)
    assert (caught.value.code, caught.value.retryable, caught.value.retry_after) == (Code.RATE_LIMIT, True, 3.0)

    def refuse(_: AdapterConfig) -> Any:
        raise ConfigError("set providers.mine.apiKeyEnv")

    with pytest.raises(ConfigError, match="apiKeyEnv"):
        await built(refuse, streamed)


async def test_models_are_listed_if_the_provider_supports_it() -> None:
    async def models(provider: Provider, _: ProviderInfo) -> Any:
        assert isinstance(provider, ListsModels)
        return await provider.list_models()

    async def lists(provider: Provider, _: ProviderInfo) -> bool:
        return isinstance(provider, ListsModels)

    entry = ModelEntry("one", 8192)
    assert await built(lambda _: Lists(entry), models) == [entry]
    assert not await built(lambda _: Fake(), lists)
    assert "str is not one of ModelEntry" in await failure_of(lambda _: Lists("one"), models)


@pytest.mark.parametrize("at_end", [False, True])
async def test_a_stream_that_pauses_too_long_is_stalled(at_end: bool) -> None:
    fake = Fake()

    async def pause(request: CompletionRequest) -> AsyncGenerator[Any]:
        yield TextPiece("a")
        try:
            if at_end:
                yield STOP
        finally:
            await asyncio.Event().wait()

    fake.stream = pause
    seen: list[Any] = []

    async def read(provider: Provider, _: ProviderInfo) -> None:
        async with aclosing(provider.stream(replace(REQUEST, stream_opts=StreamOptions(idle_timeout=0.1)))) as events:
            async for event in events:
                seen.append(event)  # noqa: PERF401 - what comes before the failure counts

    with pytest.raises(ProviderError, match=r"sent nothing for 0\.1 s") as caught:
        await built(lambda _: fake, read)
    assert (caught.value.code, caught.value.retryable) == (Code.STREAM_STALLED, True)
    assert seen == [TextPiece("a"), STOP][: 1 + at_end]


async def test_the_provider_and_abandoned_streams_are_closed() -> None:
    fake = Fake()
    left = threading.Event()

    async def endless(request: CompletionRequest) -> AsyncGenerator[Any]:
        try:
            while True:
                yield TextPiece("a")
        finally:
            left.set()

    fake.stream = endless

    async def leave(provider: Provider, _: ProviderInfo) -> None:
        async with aclosing(provider.stream(REQUEST)) as events:
            assert await anext(events) == TextPiece("a")
        await provider.close()

    await built(lambda _: fake, leave)
    assert left.is_set()
    assert fake.closed.is_set()


async def test_a_provider_that_blocks_or_fails_on_close_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "MAX_PROVIDER_CLOSE_SECONDS", 0.05)
    gate, entered = threading.Event(), threading.Event()
    fake = Fake()

    async def block() -> None:
        entered.set()
        gate.wait(60)

    fake.close = block

    async def close(provider: Provider, _: ProviderInfo) -> None:
        await provider.close()
        await soon(entered.is_set)
        gate.set()

    await built(lambda _: fake, close)
