"""The messages adapter over a strict loopback server: the contract of all adapters, and what is its own."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from doubles.chat_server import Reply, page
from doubles.completions import KEY, fails, prompt, stream
from doubles.conversation import user
from doubles.messages_server import BOUND, MessagesServer, call, end, refusal, says, sse, start, text, thinking
from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.message import Image, Message, Opaque, Role, StopReason, Text, Thinking, ThinkingLevel, ToolCall, Usage
from yarrow.provider.base import (
    CallPiece,
    ListsModels,
    ModelEntry,
    StopPiece,
    StreamOptions,
    TextPiece,
    ThinkingPiece,
    UsagePiece,
)
from yarrow.provider.base_urls import is_local, is_vendor_url, make_messages_url
from yarrow.provider.history_repair import HIDDEN_IMAGE
from yarrow.provider.http.client import HttpClient
from yarrow.provider.messages.adapter import MAX_PAGES, MessagesProvider

WIRE = Path(__file__).parents[2] / "fixtures/wire"
LISTS: list[dict[str, Any]] = json.loads((WIRE / "model-lists.json").read_text("utf-8"))
ERRORS: list[dict[str, Any]] = json.loads((WIRE / "http-errors.json").read_text("utf-8"))
PNG = Image("image/png", "iVBORw0KGgo=")


def provider_for(server: MessagesServer, model: str = "m", *, key: str = "", **settings: Any) -> MessagesProvider:
    values: dict[str, Any] = {"base_url": server.root, **settings}
    return MessagesProvider("acme", model, settings=ProviderSettings(**values), key=key, http=HttpClient())


@pytest.fixture
async def server() -> AsyncGenerator[MessagesServer]:
    async with MessagesServer(key=KEY) as running:
        yield running


@pytest.fixture
async def provider(server: MessagesServer) -> AsyncGenerator[MessagesProvider]:
    made = provider_for(server, key=KEY)
    yield made
    await made.close()


def answer(*content: Any, model: str = "m") -> Message:
    return Message(id="a", role=Role.ASSISTANT, content=content, timestamp="", provider="acme", model=model)


def result(call_id: str, *content: Text | Image) -> Message:
    return Message(id="r", role=Role.TOOL, content=content, timestamp="", tool_call_id=call_id, tool_name="ls")


# -- the contract of all adapters ----------------------------------------------------------------------------------


async def test_an_answer_of_text(provider: MessagesProvider, server: MessagesServer) -> None:
    server.replies = [Reply([start(9), text(0, "Hel", "lo"), end(output=2)])]
    events = await stream(provider)
    assert "".join(one.text for one in events if isinstance(one, TextPiece)) == "Hello"
    assert events[-2:] == [UsagePiece(Usage(9, 2)), StopPiece(StopReason.END_TURN)]


async def test_thinking_a_call_and_its_result(provider: MessagesProvider, server: MessagesServer) -> None:
    first = [start(), thinking(0, "hm"), call(1, "a", "ls", '{"p":', "1}"), end("tool_use")]
    server.replies = [Reply(first), says("done")]
    events = await stream(provider, prompt(thinking=ThinkingLevel.MEDIUM))
    signed = '{"signature":"c2ln"}'
    assert events[:2] == [ThinkingPiece("hm", signed), CallPiece(ToolCall("a", "ls", '{"p":1}'))]
    assert events[-1] == StopPiece(StopReason.TOOL_USE)
    history = (user("hi"), answer(Thinking("hm", signed), ToolCall("a", "ls", '{"p":1}')), result("a", Text("x")))
    await stream(provider, prompt(*history, thinking=ThinkingLevel.MEDIUM))
    body = server.prompts[-1]
    assert body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "tool_use", "id": "a", "name": "ls", "input": {"p": 1}},
    ]
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 10_000}


async def test_an_irregular_history_becomes_a_valid_request(provider: MessagesProvider, server: MessagesServer) -> None:
    """The server checks the rules; what it refuses fails here."""
    server.replies = [says("ok")]
    history = (
        Message(id="1", role=Role.TOOL, content=(), timestamp="", tool_call_id="z"),
        Message(id="2", role=Role.ASSISTANT, content=(ToolCall("", "a.b", "{"), Opaque("{}")), timestamp=""),
        Message(id="3", role=Role.ASSISTANT, content=(Text("half"),), timestamp="", incomplete=True),
        Message(id="4", role=Role.USER, content=(Text(" "), Text("\ud83c")), timestamp=""),
    )
    assert await stream(provider, prompt(*history))


async def test_a_connection_is_reused(provider: MessagesProvider, server: MessagesServer) -> None:
    server.replies = [says("one"), says("two")]
    await provider.info()
    await stream(provider)
    await stream(provider)
    assert server.connections == 1


async def test_case_P_10_a_truncated_stream(provider: MessagesProvider, server: MessagesServer) -> None:
    opened = text(0, "The answer is").replace(sse("content_block_stop", index=0), b"")
    for whole in (True, False):
        server.replies = [Reply([start(), opened], whole=whole)]
        events, error = await fails(provider)
        assert events == [TextPiece("The answer is")]
        assert (error.code, error.retryable) == (Code.STREAM_TRUNCATED, True)


async def test_case_P_10_an_error_after_the_stop_reason_is_ignored(
    provider: MessagesProvider, server: MessagesServer
) -> None:
    stopped = end().removesuffix(sse("message_stop"))
    server.replies = [Reply([start(), text(0, "4"), stopped], whole=False)]
    assert (await stream(provider))[-1] == StopPiece(StopReason.END_TURN)


async def test_a_server_that_leaves_the_body_open_is_not_waited_for(
    provider: MessagesProvider, server: MessagesServer
) -> None:
    server.replies = [Reply([start(), text(0, "4"), end(), asyncio.Event()])]
    async with asyncio.timeout(5):
        assert (await stream(provider))[-1] == StopPiece(StopReason.END_TURN)


async def test_events_are_yielded_as_they_arrive(provider: MessagesProvider, server: MessagesServer) -> None:
    gate = asyncio.Event()
    server.replies = [Reply([start(), text(0, "a"), gate, text(1, "b"), end()])]
    async with aclosing(provider.stream(prompt())) as events:
        assert await anext(events) == TextPiece("a")
        gate.set()
        assert await anext(events) == TextPiece("b")


async def test_chunk_size_joins_deltas(provider: MessagesProvider, server: MessagesServer) -> None:
    server.replies = [Reply([start(), *(text(at, letter) for at, letter in enumerate("abcd")), end()])]
    events = await stream(provider, prompt(stream_opts=StreamOptions(chunk_size=100)))
    assert events[0] == TextPiece("abcd")


async def test_a_cancelled_stream_closes_its_connection(provider: MessagesProvider, server: MessagesServer) -> None:
    server.replies = [Reply([start(), text(0, "a"), asyncio.Event()]), says("next")]
    first = asyncio.Event()

    async def read() -> None:
        async for _ in provider.stream(prompt()):
            first.set()

    reading = asyncio.create_task(read())
    await first.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert (await stream(provider))[0] == TextPiece("next")
    assert server.connections == 2


async def test_a_silent_server_times_out(provider: MessagesProvider, server: MessagesServer) -> None:
    server.replies = [Reply([start(), text(0, "a"), asyncio.Event()])]
    events, error = await fails(provider, prompt(stream_opts=StreamOptions(idle_timeout=0.1)))
    assert events == [TextPiece("a")]
    assert (error.code, error.retryable) == (Code.STREAM_STALLED, True)


async def test_a_server_that_does_not_stream(provider: MessagesProvider, server: MessagesServer) -> None:
    usage = {"input_tokens": 4, "output_tokens": 1}
    content = [{"type": "text", "text": "whole"}]
    server.replies = [page({"type": "message", "content": content, "stop_reason": "end_turn", "usage": usage})]
    assert await stream(provider) == [TextPiece("whole"), UsagePiece(Usage(4, 1)), StopPiece(StopReason.END_TURN)]


async def test_a_web_page_is_not_an_answer(provider: MessagesProvider, server: MessagesServer) -> None:
    server.replies = [Reply([b"<html>Welcome"], headers={"content-type": "text/html"})]
    _, error = await fails(provider)
    assert (error.code, error.retryable) == (Code.MALFORMED_RESPONSE, False)


@pytest.mark.parametrize(
    "case", [row for row in ERRORS if row["provider"] == "messages-style"], ids=lambda row: str(row["status"])
)
async def test_errors_before_the_stream(case: dict[str, Any]) -> None:
    # Twice, because what says how much room is left is tried again with that.
    async with MessagesServer([page(case["body"], case["status"], case["headers"])] * 2) as server:
        provider = provider_for(server)
        events, error = await fails(provider)
        await provider.close()
        wanted = case["expected"]
        assert (events, error.code.lower(), error.retryable) == ([], wanted["code"], wanted["retryable"])
        assert error.retry_after == wanted["retry_after_s"]
        assert (error.context_window or None) == wanted["context_window"]


async def test_an_invalid_key_is_an_error_that_hides_the_key() -> None:
    async with MessagesServer(key="another") as server:
        provider = provider_for(server, key=KEY)
        _, error = await fails(provider)
        assert error.code is Code.AUTH
        assert KEY not in repr(vars(provider))
        await provider.close()


async def test_headers_and_the_key() -> None:
    async with MessagesServer([says("x"), says("y")]) as server:
        for key in ("", KEY):
            provider = provider_for(server, key=key, headers={"Anthropic-Beta": "one"})
            await stream(provider)
            await provider.close()
        without, with_key = server.received
        assert "x-api-key" not in without.headers
        assert with_key.headers["x-api-key"] == KEY
        assert "authorization" not in with_key.headers
        assert with_key.headers["anthropic-version"] == "2023-06-01"
        assert with_key.headers["anthropic-beta"] == "one"


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/", "/v1/messages"])
async def test_equivalent_spellings_of_the_base_url(suffix: str) -> None:
    async with MessagesServer([says("x")]) as server:
        server.pages["/v1/models"] = page({"data": [{"id": "one", "max_input_tokens": 5}]})
        provider = provider_for(server, base_url=f" {server.root}{suffix}")
        await stream(provider)
        assert isinstance(provider, ListsModels)
        assert await provider.list_models() == [ModelEntry("one", 5)]
        await provider.close()
        assert {received.path for received in server.received} == {"/v1/messages", "/v1/models"}


async def test_an_unreachable_server_is_reported_with_its_address() -> None:
    async with MessagesServer() as server:
        root = server.root
    provider = provider_for(server)
    _, error = await fails(provider)
    assert (error.code, error.retryable) == (Code.UNREACHABLE, True)
    assert root.removeprefix("http://") in error.message
    await provider.close()
    await provider.close()


@pytest.mark.parametrize(
    ("url", "base", "official", "local"),
    [
        ("", "https://api.anthropic.com/v1", True, False),
        ("https://API.anthropic.com:443/v1/", "https://API.anthropic.com:443/v1", True, False),
        ("http://api.anthropic.com", "http://api.anthropic.com/v1", False, False),
        ("https://api.anthropic.com.evil.example", "https://api.anthropic.com.evil.example/v1", False, False),
        ("https://api.anthropic.com@evil.example", "https://api.anthropic.com@evil.example/v1", False, False),
        ("https://h.example/anthropic", "https://h.example/anthropic/v1", False, False),
        ("http://localhost:8080/v1/messages", "http://localhost:8080/v1", False, True),
        ("http://[::1", "http://[::1/v1", False, False),
    ],
)
def test_addresses(url: str, base: str, official: bool, local: bool) -> None:
    assert (make_messages_url(url), is_vendor_url(url, "messages"), is_local(url)) == (base, official, local)


# -- models --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case", [row for row in LISTS if row["provider"] == "messages-style"], ids=lambda row: row["name"]
)
async def test_lists_of_models(case: dict[str, Any]) -> None:
    async with MessagesServer() as server:
        server.pages = {path.removeprefix("GET "): page(value) for path, value in case["responses"].items()}
        provider = provider_for(server)
        windows = case["expected_context_window"]
        expected = [ModelEntry(name, windows.get(name, 0)) for name in case["expected_models"]]
        assert await provider.list_models() == expected
        await provider.close()


async def test_an_endless_list_is_abandoned(provider: MessagesProvider, server: MessagesServer) -> None:
    endless = page({"data": [{"id": "a b"}, {"name": "no id"}, 5], "has_more": True, "last_id": "a b"})
    server.pages = {"/v1/models": endless, "/v1/models?after_id=a%20b": endless}
    assert await provider.list_models() == [ModelEntry("a b")] * MAX_PAGES


async def test_a_list_that_is_not_json_is_an_error(provider: MessagesProvider, server: MessagesServer) -> None:
    server.pages["/v1/models"] = page("<xml>")
    with pytest.raises(ProviderError, match="invalid JSON") as caught:
        await provider.list_models()
    assert caught.value.code is Code.MALFORMED_RESPONSE


async def test_info_queries_the_server() -> None:
    entry = {"id": "x", "max_input_tokens": 500, "max_tokens": 50}
    async with MessagesServer() as server:
        server.pages["/v1/models/x%2Fy"] = page(entry | {"capabilities": {"image_input": {"supported": False}}})
        provider = provider_for(server, "x/y")
        info = await provider.info()
        assert (info.name, info.model, info.context_window, info.max_tokens) == ("acme", "x/y", 500, 50)
        assert not info.has_images
        configured = provider_for(server, "x/y", context_window=7, max_tokens=8)
        assert ((await configured.info()).context_window, (await configured.info()).max_tokens) == (7, 8)
        await provider.close()
        await configured.close()


@pytest.mark.parametrize(
    ("model", "window", "limit"),
    [
        ("claude-opus-4-8", 1_000_000, 128_000),
        ("claude-opus-4-6", 1_000_000, 128_000),
        ("claude-haiku-4-5-20251001", 200_000, 64_000),
        ("claude-opus-4-20250514", 200_000, 32_000),
        ("claude-3-7-sonnet-20250219", 200_000, 64_000),
        ("claude-3-5-haiku-latest", 200_000, 8_192),
        ("claude-3-opus-20240229", 200_000, 4_096),
        ("anthropic/claude-sonnet-4.6", 1_000_000, 128_000),
        ("claude-fable-5", 1_000_000, 128_000),
        ("another", 0, 0),
    ],
)
async def test_info_without_an_answer_uses_the_name(model: str, window: int, limit: int) -> None:
    async with MessagesServer() as server:
        provider = provider_for(server, model)
        info = await provider.info()
        await provider.close()
        assert (info.context_window, info.max_tokens, info.has_images) == (window, limit, True)


async def test_info_without_a_model_explains_how_to_set_one() -> None:
    async with MessagesServer() as server:
        with pytest.raises(ProviderError, match="-m") as caught:
            await provider_for(server, "").info()
        assert caught.value.code is Code.PROVIDER_SETUP


# -- ways of thinking ----------------------------------------------------------------------------------------------


def capabilities(*types: str, effort: dict[str, Any] | None = None) -> Reply:
    supported = {name: {"supported": name in types} for name in ("enabled", "adaptive", "disabled", "between_tools")}
    told: dict[str, Any] = {"thinking": {"supported": bool(types), "types": supported}}
    return page({"id": "m", "capabilities": told | ({"effort": effort} if effort else {})})


def kinds(server: MessagesServer) -> list[str | None]:
    return [body.get("thinking", {}).get("type") for body in server.prompts]


HARD = prompt(thinking=ThinkingLevel.HIGH, temperature=0.5)


@pytest.mark.parametrize(
    ("types", "kind"), [(("enabled", "adaptive"), "enabled"), (("adaptive", "disabled"), "adaptive"), ((), None)]
)
async def test_the_model_list_defines_the_thinking_style(types: tuple[str, ...], kind: str | None) -> None:
    async with MessagesServer([says("x")]) as server:
        server.pages["/v1/models/m"] = capabilities(*types)
        provider = provider_for(server)
        await provider.info()
        await stream(provider, HARD)
        await provider.close()
        assert kinds(server) == [kind]


async def test_a_model_without_budgets_gets_no_temperature_either() -> None:
    async with MessagesServer([says("x")]) as server:
        server.pages["/v1/models/m"] = capabilities("adaptive")
        provider = provider_for(server)
        await provider.info()
        await stream(provider, prompt(temperature=0.5))
        await provider.close()
        assert "temperature" not in server.prompts[0]


async def test_the_model_list_defines_the_efforts() -> None:
    async with MessagesServer([says("x")]) as server:
        levels = {"supported": True, "low": {"supported": True}, "medium": {"supported": True}}
        server.pages["/v1/models/m"] = capabilities("adaptive", effort=levels | {"high": {"supported": False}})
        provider = provider_for(server)
        await provider.info()
        await stream(provider, HARD)
        await provider.close()
        assert server.prompts[0]["output_config"] == {"effort": "medium"}


@pytest.mark.parametrize(
    ("refuses", "expected"),
    [
        ({"enabled"}, ["enabled", "adaptive", "adaptive"]),
        ({"enabled", "temperature"}, ["enabled", "adaptive", "adaptive"]),
        ({"enabled", "adaptive"}, ["enabled", "adaptive", None, None]),
        ({"enabled", "output_config"}, ["enabled", "adaptive", "adaptive", "adaptive"]),
    ],
)
async def test_a_rejected_thinking_style_is_changed_once(refuses: set[str], expected: list[str | None]) -> None:
    async with MessagesServer([says("x"), says("y")], refuses=refuses) as server:
        provider = provider_for(server)
        await stream(provider, HARD)
        await stream(provider, HARD)
        await provider.close()
        assert kinds(server) == expected


async def test_a_model_name_that_suggests_the_wrong_thinking_style() -> None:
    async with MessagesServer([says("x")], refuses={"adaptive"}) as server:
        provider = provider_for(server)
        await stream(provider, prompt(model="claude-opus-4-8", thinking=ThinkingLevel.HIGH))
        await provider.close()
        assert kinds(server) == ["adaptive", "enabled"]


async def test_a_model_without_thinking() -> None:
    refused = refusal("this model does not support extended thinking")
    async with MessagesServer([refused, says("x")]) as server:
        provider = provider_for(server)
        await stream(provider, HARD)
        await provider.close()
        assert kinds(server) == ["enabled", None]


async def test_a_rejected_configured_thinking_style_is_an_error() -> None:
    async with MessagesServer(refuses={"enabled"}) as server:
        provider = provider_for(server, extra_body={"thinking": {"type": "enabled", "budget_tokens": 2000}})
        _, error = await fails(provider)
        await provider.close()
        assert error.code is Code.UNSUPPORTED_PARAMETER
        assert len(server.prompts) == 1


async def test_the_learned_thinking_style_is_kept() -> None:
    async with MessagesServer([says("x")], refuses={"enabled"}) as server:
        server.pages["/v1/models/m"] = capabilities("enabled")
        provider = provider_for(server)
        provider.thinking_style = "adaptive"
        await provider.info()
        await stream(provider, HARD)
        provider.thinking_style = "budget"
        _, error = await fails(provider, HARD)
        await provider.close()
        assert error.code is Code.UNSUPPORTED_PARAMETER
        assert kinds(server) == ["adaptive", "enabled"]


# -- what else is refused ------------------------------------------------------------------------------------------


async def test_a_temperature_rejected_with_a_budget() -> None:
    async with MessagesServer([says("x")], refuses={"temperature"}) as server:
        provider = provider_for(server)
        await stream(provider, HARD)
        await provider.close()
        assert kinds(server) == ["enabled", "enabled"]


async def test_a_rejected_temperature_is_omitted_afterwards() -> None:
    async with MessagesServer([says("x"), says("y")], refuses={"temperature"}) as server:
        provider = provider_for(server, temperature=0.5)
        await stream(provider)
        await stream(provider)
        await provider.close()
        assert ["temperature" in body for body in server.prompts] == [True, False, False]


async def test_rejected_signatures_are_not_sent_again() -> None:
    old = answer(Thinking("t", '{"signature":"OLD"}'), Opaque('{"type":"redacted_thinking","data":"D"}'), Text("x"))
    new = answer(Thinking("t", '{"signature":"NEW"}'), Text("y"))
    async with MessagesServer([refusal(BOUND), says("x"), says("y")]) as server:
        provider = provider_for(server)
        await stream(provider, prompt(user("a"), old, user("b")))
        await stream(provider, prompt(user("a"), old, user("b"), new, user("c")))
        await provider.close()
        sent = [json.dumps(body) for body in server.prompts]
        assert ["OLD" in body for body in sent] == [True, False, False]
        assert ["redacted_thinking" in body for body in sent] == [True, False, False]
        assert "NEW" in sent[-1]


MODIFIED = "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest message cannot be modified"
UNTHOUGHT = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`."


async def test_thinking_that_the_backend_considers_changed_is_not_sent_again() -> None:
    async with MessagesServer([refusal(MODIFIED), says("x")]) as server:
        provider = provider_for(server)
        await stream(provider, prompt(user("a"), answer(Thinking("t", '{"signature":"S"}'), Text("x")), user("b")))
        await provider.close()
        assert ["signature" in json.dumps(body) for body in server.prompts] == [True, False]


async def test_a_request_rejected_for_thinking_is_sent_without_it() -> None:
    async with MessagesServer([refusal(UNTHOUGHT), says("x"), says("y"), refusal(UNTHOUGHT)]) as server:
        provider = provider_for(server)
        await stream(provider, HARD)
        await stream(provider, HARD)
        _, error = await fails(provider)
        await provider.close()
        assert kinds(server) == ["enabled", None, "enabled", None]
        assert error.code is Code.INVALID_REQUEST


async def test_a_signature_error_without_signatures_is_an_error() -> None:
    async with MessagesServer([refusal(BOUND)]) as server:
        provider = provider_for(server)
        _, error = await fails(provider)
        await provider.close()
        assert error.code is Code.INVALID_REQUEST


def no_room(prompt_tokens: int) -> Reply:
    sentence = f"input length and `max_tokens` exceed context limit: {prompt_tokens} + 64000 > 200000, decrease"
    return refusal(f"{sentence} input length or `max_tokens` and try again")


async def test_max_tokens_is_limited_to_the_rest_of_the_window() -> None:
    async with MessagesServer([no_room(188_000), says("x"), says("y")]) as server:
        provider = provider_for(server, "claude-sonnet-4-5")
        request = prompt(thinking=ThinkingLevel.HIGH, max_tokens=64_000, model="claude-sonnet-4-5")
        await stream(provider, request)
        await stream(provider, request)
        await provider.close()
        assert [body["max_tokens"] for body in server.prompts] == [64_000, 12_000, 64_000]
        assert server.prompts[1]["thinking"]["budget_tokens"] == 6_000


@pytest.mark.parametrize("replies", [[no_room(199_000)], [no_room(188_000), no_room(189_000)]])
async def test_a_full_window_is_an_overflow(replies: list[Reply]) -> None:
    async with MessagesServer(replies) as server:
        provider = provider_for(server)
        _, error = await fails(provider)
        await provider.close()
        assert (error.code, error.context_window) == (Code.CONTEXT_OVERFLOW, 200_000)
        assert len(server.prompts) == len(replies)


async def test_case_T_12_a_rejected_image_of_the_history_is_replaced() -> None:
    refused = refusal("messages.0.content.1.image.source.base64: image exceeds 5 MB maximum")
    async with MessagesServer([refused, says("x")]) as server:
        provider = provider_for(server)
        await stream(provider, prompt(user("look", PNG), answer(Text("hm")), user("go on")))
        await provider.close()
        assert server.prompts[-1]["messages"][0]["content"][1] == {"type": "text", "text": HIDDEN_IMAGE}


async def test_other_rejections_are_errors() -> None:
    async with MessagesServer([refusal("`max_tokens` must be greater than `thinking.budget_tokens`")]) as server:
        provider = provider_for(server)
        _, error = await fails(provider, HARD)
        await provider.close()
        assert error.code is Code.INVALID_REQUEST
        assert len(server.prompts) == 1
