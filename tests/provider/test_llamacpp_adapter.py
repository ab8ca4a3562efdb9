"""The llama.cpp adapter beyond the contract of all adapters."""

import json
from pathlib import Path
from typing import Any

import pytest

from doubles.chat_server import DONE, ChatServer, Reply, chunk, finish, page, says
from doubles.completions import send
from doubles.conversation import user
from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.message import Image, Message, Role, Text, ThinkingLevel, ToolCall, Usage
from yarrow.provider.base import ModelEntry, UsagePiece
from yarrow.provider.history_repair import HIDDEN_IMAGE
from yarrow.provider.http.client import HttpClient
from yarrow.provider.llamacpp.adapter import MAX_LOADING_SECONDS, LlamaCppProvider, LoadWait
from yarrow.provider.llamacpp.server_info import find_server

LISTS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "fixtures/wire/model-lists.json").read_text("utf-8")
)
PNG = Image("image/png", "iVBORw0KGgo=")
LOADING = page({"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}, 503)
PROPS = page({"default_generation_settings": {"n_ctx": 8192}})
MODELS = page({"data": [{"id": "first.gguf", "meta": {"n_ctx_train": 131072}}, {"id": "second.gguf"}]})


def provider_for(root: str, model: str = "m", **settings: Any) -> LlamaCppProvider:
    configured = ProviderSettings(base_url=root, **settings)
    return LlamaCppProvider("llamacpp", model, settings=configured, key="", http=HttpClient())


class Sleeps:
    """A sleep that takes no time, and what was slept."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)


# -- info ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case", [row for row in LISTS if row["provider"] == "llamacpp-style"], ids=lambda row: row["name"]
)
async def test_model_lists_and_windows(case: dict[str, Any]) -> None:
    async with ChatServer() as server:
        server.pages = {path.removeprefix("GET "): page(value) for path, value in case["responses"].items()}
        provider = provider_for(server.root, "")
        expected = [ModelEntry(name, case["expected_context_window"][name]) for name in case["expected_models"]]
        assert await provider.list_models() == expected
        info = await provider.info()
        assert (info.model, info.context_window) == (expected[0].name, expected[0].context_window)
        assert (info.has_tool_call, info.has_images) == (True, False)
        await provider.close()


@pytest.mark.parametrize(
    ("pages", "window"),
    [
        ({"/props": PROPS, "/slots": page([{"n_ctx": 5}])}, 8192),
        ({"/props": page({}), "/slots": page([{"id": 0, "n_ctx": 4096}])}, 4096),
        (
            {
                "/props": page("no", 501),
                "/slots": page("no", 501),
                "/v1/models": page({"data": [{"id": "m", "meta": {"n_ctx": 2048}}]}),
            },
            2048,
        ),
        ({"/props": page("<html>"), "/v1/models": MODELS}, 0),
    ],
    ids=["props", "slots", "list", "unknown"],
)
async def test_the_window_is_that_of_a_slot(pages: dict[str, Reply], window: int) -> None:
    async with ChatServer() as server:
        server.pages = {"/v1/models": MODELS} | pages
        provider = provider_for(server.root, "")
        assert (await provider.info()).context_window == window
        await provider.close()


async def test_the_window_is_unknown_with_several_models() -> None:
    async with ChatServer() as server:
        server.pages = {"/v1/models": MODELS, "/props": PROPS}
        provider = provider_for(server.root)
        assert await provider.list_models() == [ModelEntry("first.gguf"), ModelEntry("second.gguf")]
        await provider.close()


async def test_a_router_is_asked_for_the_model() -> None:
    async with ChatServer() as server:
        server.pages["/props?model=a%2Fb"] = PROPS
        provider = provider_for(server.root, "a/b")
        info = await provider.info()
        assert (info.model, info.context_window) == ("a/b", 8192)
        await provider.close()


async def test_info_makes_no_request_if_everything_is_configured() -> None:
    async with ChatServer() as server:
        info = await provider_for(server.root, "m", context_window=1000, max_tokens=10).info()
        assert (info.context_window, info.max_tokens) == (1000, 10)
        assert server.connections == 0


async def test_info_fails_with_an_invalid_key_or_without_a_model() -> None:
    async with ChatServer(key="k") as server:
        provider = provider_for(server.root, "")
        with pytest.raises(ProviderError) as caught:
            await provider.info()
        assert caught.value.code is Code.AUTH
        await provider.close()
    async with ChatServer() as server:
        server.pages["/v1/models"] = page({"data": []})
        provider = provider_for(server.root, "")
        with pytest.raises(ProviderError, match="-m"):
            await provider.info()
        await provider.close()


# -- where ---------------------------------------------------------------------------------------------------------


async def test_a_server_is_detected_if_none_is_configured() -> None:
    async with ChatServer() as other, ChatServer([says("x")]) as server:
        other.pages["/health"] = page({"status": "UP"})  # something else on a popular port
        server.pages = {"/health": page({"status": "ok"}), "/props?model=m": PROPS}
        provider = provider_for("")
        provider.roots = ("http://127.0.0.1:1", other.root, server.root)
        assert (await provider.info()).context_window == 8192
        await send(provider)
        assert [received.path for received in server.received if received.path == "/health"] == ["/health"]
        await provider.close()


async def test_a_missing_server_is_an_error_with_the_command() -> None:
    provider = provider_for("")
    provider.roots = ("http://127.0.0.1:1",)
    with pytest.raises(ProviderError, match=r"llama-server -m .* providers\.llamacpp\.baseUrl") as caught:
        await send(provider)
    assert (caught.value.code, caught.value.retryable) == (Code.UNREACHABLE, True)
    await provider.close()
    assert provider_for("").roots == ("http://127.0.0.1:8080", "http://127.0.0.1:9931")


async def test_the_first_responding_server_is_used_even_while_loading() -> None:
    http = HttpClient()
    async with ChatServer() as first, ChatServer() as second:
        second.pages["/health"] = page({"status": "ok"})
        assert await find_server(http, (first.root, second.root)) == second.root
        first.pages["/health"] = LOADING
        assert await find_server(http, (first.root, second.root)) == first.root
        first.pages["/health"] = page("[1]")
        second.pages["/health"] = page("not json")
        assert await find_server(http, (first.root, second.root)) == ""
    await http.close()


# -- loading -------------------------------------------------------------------------------------------------------


async def test_a_loading_model_is_waited_for() -> None:
    async with ChatServer([LOADING, LOADING, LOADING, says("x")]) as server:
        provider = provider_for(server.root)
        sleeps = Sleeps()
        provider.make_load_wait = lambda: LoadWait(sleeps)
        assert await send(provider)
        assert len(server.prompts) == 4
        assert sleeps.slept == sorted(sleeps.slept)
        assert len(sleeps.slept) == 3
        await provider.close()


async def test_info_waits_for_a_loading_model_too() -> None:
    async with ChatServer() as server:
        server.pages["/props?model=m"] = LOADING
        provider = provider_for(server.root)

        async def loaded(_: float) -> None:
            server.pages["/props?model=m"] = PROPS

        provider.make_load_wait = lambda: LoadWait(loaded)
        assert (await provider.info()).context_window == 8192
        await provider.close()


async def test_a_model_that_never_loads_times_out() -> None:
    async with ChatServer([LOADING] * 2000) as server:
        provider = provider_for(server.root)
        sleeps = Sleeps()
        provider.make_load_wait = lambda: LoadWait(sleeps)
        with pytest.raises(ProviderError, match="600 s") as caught:
            await send(provider)
        assert (caught.value.code, caught.value.retryable) == (Code.OVERLOADED, True)
        assert MAX_LOADING_SECONDS <= sum(sleeps.slept) <= MAX_LOADING_SECONDS + 1
        await provider.close()


async def test_other_overloads_are_retried_by_the_agent() -> None:
    async with ChatServer([page({"error": {"message": "no slot", "type": "unavailable_error"}}, 503)]) as server:
        provider = provider_for(server.root)
        sleeps = Sleeps()
        provider.make_load_wait = lambda: LoadWait(sleeps)
        with pytest.raises(ProviderError, match="no slot"):
            await send(provider)
        assert sleeps.slept == []
        await provider.close()


# -- requests ------------------------------------------------------------------------------------------------------


async def test_a_rejected_image_of_the_user_is_an_error_and_the_session_works() -> None:
    async with ChatServer([says("x")]) as server:
        provider = provider_for(server.root)
        with pytest.raises(ProviderError, match="cannot read images") as caught:
            await send(provider, user(Text("look"), PNG))
        assert caught.value.code is Code.UNSUPPORTED_FEATURE
        assert server.prompts == []
        assert await send(provider, user(Text("look"), PNG), user(Text("never mind")))
        assert server.prompts[0]["messages"][0]["content"] == f"look\n\n{HIDDEN_IMAGE}\n\nnever mind"
        await provider.close()


async def test_an_image_of_a_tool_becomes_a_note() -> None:
    async with ChatServer([says("x")]) as server:
        provider = provider_for(server.root)
        call = Message(id="a", role=Role.ASSISTANT, content=(ToolCall("c", "read"),), timestamp="")
        result = Message(id="r", role=Role.TOOL, content=(PNG,), timestamp="", tool_call_id="c")
        assert await send(provider, user(Text("hi")), call, result)
        assert server.prompts[0]["messages"][-1]["content"] == HIDDEN_IMAGE
        await provider.close()


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (ThinkingLevel.OFF, {"enable_thinking": False}),
        (ThinkingLevel.MINIMAL, {"enable_thinking": True, "reasoning_effort": "low"}),
        (ThinkingLevel.MEDIUM, {"enable_thinking": True, "reasoning_effort": "medium"}),
        (ThinkingLevel.MAX, {"enable_thinking": True, "reasoning_effort": "high"}),
    ],
)
async def test_thinking_is_left_to_the_template(level: ThinkingLevel, expected: dict[str, Any]) -> None:
    async with ChatServer([says("x")]) as server:
        provider = provider_for(server.root, extra_body={"chat_template_kwargs": {"more": 1}})
        await send(provider, thinking=level)
        assert server.prompts[0]["chat_template_kwargs"] == expected | {"more": 1}
        await provider.close()


async def test_usage_from_timings() -> None:
    timings = {"cache_n": 30, "prompt_n": 10, "predicted_n": 2, "prompt_ms": 1.5}
    async with ChatServer([Reply([chunk({"content": "x"}), finish("stop", timings=timings), DONE])]) as server:
        provider = provider_for(server.root)
        assert UsagePiece(Usage(10, 2, cache_read=30)) in await send(provider)
        await provider.close()
