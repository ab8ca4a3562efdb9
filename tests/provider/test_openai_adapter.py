"""The OpenAI adapter beyond the contract of all adapters."""

import json
from pathlib import Path
from typing import Any

import pytest

from doubles.chat_server import ChatServer, page, says
from doubles.completions import send
from doubles.conversation import user
from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.message import Image, Message, Role, Text, Thinking, ThinkingLevel, ToolCall
from yarrow.provider.base import CompletionRequest, ModelEntry
from yarrow.provider.base_urls import parse_openai_address
from yarrow.provider.chat_completions.server_limits import apply_chat_limits, find_host_limits
from yarrow.provider.history_repair import HIDDEN_IMAGE
from yarrow.provider.http.client import HttpClient
from yarrow.provider.openai.adapter import OpenAiProvider, make_openai_fields

LISTS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "fixtures/wire/model-lists.json").read_text("utf-8")
)
PNG = Image("image/png", "iVBORw0KGgo=")


def provider_for(server: ChatServer, model: str = "m", **settings: Any) -> OpenAiProvider:
    configured = ProviderSettings(base_url=server.root, **settings)
    return OpenAiProvider("acme", model, settings=configured, key="", http=HttpClient())


# -- where ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("", "https://api.openai.com/v1"),
        ("https://api.openai.com", "https://api.openai.com/v1"),
        ("http://h:1/", "http://h:1/v1"),
        ("http://h/v1/chat/completions", "http://h/v1"),
        ("https://h/api/v1/", "https://h/api/v1"),
        ("https://h/api/paas/v4", "https://h/api/paas/v4"),
        ("https://h/v1beta/openai/", "https://h/v1beta/openai"),
        ("https://h/proxy", "https://h/proxy"),
        ("https://h/vendor", "https://h/vendor"),
        ("http://[::1", "http://[::1"),
    ],
)
def test_base_urls(url: str, base: str) -> None:
    assert parse_openai_address(url).base == base


@pytest.mark.parametrize(
    ("url", "call_url", "other"),
    [
        ("http://h/chat/completions", "http://h/chat/completions", ""),
        ("http://h/inference", "http://h/inference/chat/completions", "http://h/inference/v1"),
        ("http://h/inference/chat/completions/", "http://h/inference/chat/completions", ""),
        (
            "https://x.openai.azure.com/openai/deployments/gpt/chat/completions?api-version=2024-10-21",
            "https://x.openai.azure.com/openai/deployments/gpt/chat/completions?api-version=2024-10-21",
            "",
        ),
        ("https://h/v1?key=a", "https://h/v1/chat/completions?key=a", ""),
        ("https://h?key=a", "https://h/v1/chat/completions?key=a", ""),
        ("https://api.githubcopilot.com", "https://api.githubcopilot.com/v1/chat/completions", ""),
        (
            "https://models.github.ai/inference",
            "https://models.github.ai/inference/chat/completions",
            "https://models.github.ai/inference/v1",
        ),
        ("https://api.perplexity.ai/chat/completions", "https://api.perplexity.ai/chat/completions", ""),
        (
            "https://us-aiplatform.googleapis.com/v1/projects/p/locations/us/endpoints/openapi",
            "https://us-aiplatform.googleapis.com/v1/projects/p/locations/us/endpoints/openapi/chat/completions",
            "",
        ),
    ],
)
def test_case_RA_10_the_address_is_used_as_written(url: str, call_url: str, other: str) -> None:
    address = parse_openai_address(url)
    assert (address.call_url, address.other) == (call_url, other)


@pytest.mark.parametrize(
    ("url", "official", "local", "trusted"),
    [
        ("", True, False, True),
        ("https://API.openai.com:443/v1", True, False, True),
        ("http://api.openai.com/v1", True, False, False),
        ("https://api.openai.com.evil.example/v1", False, False, False),
        ("https://evil.example/api.openai.com/v1", False, False, False),
        ("https://api.openai.com@evil.example/v1", False, False, False),
        ("http://127.0.0.1:1/v1", False, True, False),
        ("http://localhost:8000", False, True, False),
        ("http://192.168.1.5:8000", False, True, False),
        ("https://127.0.0.1.example.com", False, False, False),
    ],
)
def test_known_hosts_have_their_settings(url: str, official: bool, local: bool, trusted: bool) -> None:
    address = parse_openai_address(url)
    assert (address.is_official, address.is_local_server, address.is_trusted) == (official, local, trusted)


# -- fields --------------------------------------------------------------------------------------------------------


def fields_of(
    url: str = "", model: str = "gpt-4o", settings: dict[str, Any] | None = None, **request: Any
) -> dict[str, Any]:
    wanted = CompletionRequest(model=model, messages=(), **request)
    result = make_openai_fields(wanted, ProviderSettings(base_url=url, **(settings or {})), parse_openai_address(url))
    assert result.pop("stream_options") == {"include_usage": True}
    return result


ELSEWHERE = "https://models.example/v1"


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (fields_of(), {}),
        (fields_of(max_tokens=5), {"max_completion_tokens": 5}),
        (fields_of(ELSEWHERE, max_tokens=5), {"max_tokens": 5}),
        (fields_of(settings={"max_tokens": 7}), {"max_completion_tokens": 7}),
        (fields_of(settings={"max_tokens": 7}, max_tokens=5), {"max_completion_tokens": 5}),
        (fields_of(temperature=0.0), {"temperature": 0.0}),
        (fields_of(settings={"temperature": 0.3}), {"temperature": 0.3}),
        (fields_of(model="gpt-5-mini", temperature=0.0), {}),
        (fields_of(ELSEWHERE, model="gpt-5-mini", temperature=0.0), {"temperature": 0.0}),
        (fields_of(thinking=ThinkingLevel.HIGH, temperature=0.0), {"reasoning_effort": "high"}),
        (fields_of(thinking=ThinkingLevel.MAX), {"reasoning_effort": "xhigh"}),
        (fields_of(ELSEWHERE, thinking=ThinkingLevel.MAX), {"reasoning_effort": "max"}),
        (
            fields_of(ELSEWHERE, thinking=ThinkingLevel.LOW, temperature=0.4),
            {"reasoning_effort": "low", "temperature": 0.4},
        ),
    ],
)
def test_optional_fields_of_requests(made: dict[str, Any], expected: dict[str, Any]) -> None:
    assert made == expected


def test_a_host_that_requires_the_thinking_field_gets_it() -> None:
    messages = [
        {"role": "user"},
        {"role": "assistant", "tool_calls": [1]},
        {"tool_calls": [2], "reasoning_content": "t"},
    ]
    body = {"messages": messages}
    completed = apply_chat_limits(body, find_host_limits("api.deepseek.com"))
    assert completed["messages"] == [messages[0], messages[1] | {"reasoning_content": ""}, messages[2]]
    assert apply_chat_limits(body, find_host_limits("")) is body


# -- info and models -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "configured", "window"),
    [
        ("gpt-4o-mini", 0, 128_000),
        ("gpt-4.1-nano", 0, 1_047_576),
        ("gpt-4-0613", 0, 8_192),
        ("openai/gpt-4o", 0, 128_000),
        ("gpt-4o", 5000, 5000),
        ("gpt-42", 0, 0),
        ("m", 0, 0),
    ],
)
async def test_info_makes_no_request(model: str, configured: int, window: int) -> None:
    async with ChatServer() as server:
        provider = provider_for(server, model, context_window=configured, max_tokens=9)
        info = await provider.info()
        assert (info.name, info.model, info.max_tokens, info.context_window) == ("acme", model, 9, window)
        assert info.has_images
        assert server.connections == 0


async def test_info_without_a_model_explains_how_to_set_one() -> None:
    async with ChatServer() as server:
        with pytest.raises(ProviderError, match="-m") as caught:
            await provider_for(server, "").info()
        assert caught.value.code is Code.PROVIDER_SETUP


@pytest.mark.parametrize(
    "case", [row for row in LISTS if row["provider"] == "openai-style"], ids=lambda row: row["name"]
)
async def test_lists_of_models(case: dict[str, Any]) -> None:
    async with ChatServer() as server:
        server.pages = {path.removeprefix("GET "): page(value) for path, value in case["responses"].items()}
        provider = provider_for(server)
        expected = [ModelEntry(name, case["expected_context_window"][name]) for name in case["expected_models"]]
        assert await provider.list_models() == expected
        await provider.close()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ([{"id": "a"}, {"name": "b", "context_window": 7}, 5, {"id": 3}], [ModelEntry("a"), ModelEntry("b", 7)]),
        ({"models": [{"model": "a", "max_context_length": 3}]}, [ModelEntry("a", 3)]),
        ({"data": [{"id": "gpt-4"}]}, [ModelEntry("gpt-4", 8192)]),
        ({"data": None}, []),
        ("text", []),
    ],
)
async def test_model_lists_in_other_shapes(answer: object, expected: list[ModelEntry]) -> None:
    async with ChatServer() as server:
        server.pages["/v1/models"] = page(json.dumps(answer))
        provider = provider_for(server)
        assert await provider.list_models() == expected
        await provider.close()


async def test_a_list_that_is_not_json_is_an_error() -> None:
    async with ChatServer() as server:
        server.pages["/v1/models"] = page("<xml>")
        provider = provider_for(server)
        with pytest.raises(ProviderError, match="invalid JSON") as caught:
            await provider.list_models()
        assert caught.value.code is Code.MALFORMED_RESPONSE
        await provider.close()


# -- what is refused -----------------------------------------------------------------------------------------------


async def test_the_token_limit_is_sent_under_its_other_name() -> None:
    async with ChatServer([says("x"), says("y")], refuses=["max_tokens"]) as server:
        provider = provider_for(server)
        for _ in range(2):
            await send(provider, user(Text("hi")), max_tokens=5)
        await provider.close()
        assert ["max_completion_tokens" in body for body in server.prompts] == [False, True, True]
        assert server.prompts[-1]["max_completion_tokens"] == 5


async def test_a_token_limit_rejected_under_both_names_is_dropped() -> None:
    async with ChatServer([says("x")], refuses=["max_tokens", "max_completion_tokens"]) as server:
        provider = provider_for(server)
        await send(provider, user(Text("hi")), max_tokens=5)
        await provider.close()
        assert server.prompts[-1].keys().isdisjoint({"max_tokens", "max_completion_tokens"})


async def test_a_rejected_thinking_field_is_not_sent_back() -> None:
    thought = Message(
        id="a",
        role=Role.ASSISTANT,
        content=(Thinking("t", '{"field":"reasoning_content"}'), Text("42")),
        timestamp="",
        provider="acme",
        model="m",
    )
    refusal = page(
        {"error": {"message": "property 'reasoning_content' is unsupported: extra inputs are not permitted"}}, 400
    )
    async with ChatServer([refusal, says("x")]) as server:
        provider = provider_for(server)
        await send(provider, user(Text("hi")), thought, user(Text("ok")))
        await provider.close()
        first, second = server.prompts
        assert first["messages"][1] == {"role": "assistant", "content": "42", "reasoning_content": "t"}
        assert second["messages"][1] == {"role": "assistant", "content": "42"}


IMAGE_REFUSED = page({"error": {"message": "messages.1.content.0.image: the image is too large"}}, 400)


async def test_case_T_12_a_rejected_image_of_the_history_is_replaced() -> None:
    async with ChatServer([IMAGE_REFUSED, says("x"), says("y")]) as server:
        provider = provider_for(server)
        history = [user(Text("look"), PNG), Message(id="a", role=Role.ASSISTANT, content=(Text("hm"),), timestamp="")]
        await send(provider, *history, user(Text("go on")))
        await send(provider, *history, user(Text("go on")))
        await provider.close()
        assert len(server.prompts) == 3
        assert server.prompts[0]["messages"][0]["content"][1]["type"] == "image_url"
        for body in server.prompts[1:]:
            assert body["messages"][0]["content"] == f"look\n\n{HIDDEN_IMAGE}"


async def test_an_image_of_the_current_prompt_is_not_dropped_silently() -> None:
    async with ChatServer([IMAGE_REFUSED]) as server:
        provider = provider_for(server)
        with pytest.raises(ProviderError, match="too large"):
            await send(provider, user(Text("look"), PNG))
        await provider.close()


async def test_an_image_that_a_tool_returns_is_replaced() -> None:
    async with ChatServer([IMAGE_REFUSED, says("x")]) as server:
        provider = provider_for(server)
        call = Message(id="a", role=Role.ASSISTANT, content=(ToolCall("c", "read"),), timestamp="")
        result = Message(id="r", role=Role.TOOL, content=(PNG,), timestamp="", tool_call_id="c")
        await send(provider, user(Text("hi")), call, result)
        await provider.close()
        assert server.prompts[-1]["messages"][-1]["content"] == HIDDEN_IMAGE
