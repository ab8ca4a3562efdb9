"""The Ollama adapter over a strict loopback server that rejects what the real one rejects."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from doubles.chat_server import Reply, page
from doubles.completions import KEY, fails, prompt, send
from doubles.conversation import user
from doubles.ollama_server import OllamaServer, answer, call, done, line, refusal, said, says, shown
from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.message import Image, Message, Role, StopReason, Text, ThinkingLevel, ToolCall, ToolSpec, Usage
from yarrow.provider.base import (
    CallPiece,
    ListsModels,
    ModelEntry,
    NoticePiece,
    StopPiece,
    StreamOptions,
    TextPiece,
    ThinkingPiece,
    UsagePiece,
)
from yarrow.provider.base_urls import OLLAMA_URL, is_hosted_ollama, parse_ollama_root
from yarrow.provider.history_repair import HIDDEN_IMAGE
from yarrow.provider.http.client import HttpClient, HttpRequest, HttpResponse
from yarrow.provider.ollama.adapter import MAX_LISTED_WINDOWS, OllamaProvider
from yarrow.provider.ollama.capabilities import FIELD_MARK

WIRE = Path(__file__).parents[2] / "fixtures/wire"
LISTS: list[dict[str, Any]] = json.loads((WIRE / "model-lists.json").read_text("utf-8"))
PNG = Image("image/png", "iVBORw0KGgo=")
READ = ToolSpec("read", "Reads.", {"type": "object"})


def provider_for(root: str, model: str = "m", *, key: str = "", **settings: Any) -> OllamaProvider:
    configured = ProviderSettings(base_url=root, **settings)
    return OllamaProvider("ollama", model, settings=configured, key=key, http=HttpClient())


# -- info ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case", [row for row in LISTS if row["provider"] == "ollama-style"], ids=lambda row: row["name"]
)
async def test_model_lists_and_windows(case: dict[str, Any]) -> None:
    async with OllamaServer() as server:
        responses: dict[str, Any] = case["responses"]
        server.pages = {path.removeprefix("GET "): page(value) for path, value in responses.items() if "GET" in path}
        [name] = case["expected_models"]
        server.models = {name: responses["POST /api/show"]}
        provider = provider_for(server.root, "")
        assert isinstance(provider, ListsModels)
        assert await provider.list_models() == [ModelEntry(name, case["expected_context_window"][name])]
        info = await provider.info()
        assert (info.name, info.model) == ("ollama", name)
        assert info.context_window == case["expected_context_window"][name]
        await provider.close()


async def test_the_window_of_each_listed_model() -> None:
    async with OllamaServer() as server:
        names = ["loaded", "named", "other", "removed", *(f"more{number}" for number in range(MAX_LISTED_WINDOWS))]
        running = [{"name": "loaded", "context_length": 16384}]
        server.pages = {
            "/api/tags": page({"models": [{"name": name} for name in names]}),
            "/api/ps": page({"models": running}),
        }
        server.models = dict.fromkeys(names, shown()) | {"named": shown(parameters="num_ctx 8192")}
        del server.models["removed"]
        provider = provider_for(server.root, "")
        assert isinstance(provider, ListsModels)
        listed = await provider.list_models()
        await provider.close()
    assert [entry.name for entry in listed] == names
    assert [entry.context_window for entry in listed[:5]] == [16384, 8192, 4096, 0, 4096]
    assert [entry.context_window for entry in listed[MAX_LISTED_WINDOWS:]] == [0] * 4
    asked = [received.path for received in server.received]
    assert (asked.count("/api/ps"), asked.count("/api/show")) == (1, MAX_LISTED_WINDOWS)


async def test_an_old_server_lists_its_models_with_the_default_window() -> None:
    async with OllamaServer(old=True) as server:
        server.pages.pop("/api/ps")
        provider = provider_for(server.root, "")
        assert isinstance(provider, ListsModels)
        assert await provider.list_models() == [ModelEntry("m", 4096)]
        await provider.close()


@pytest.mark.parametrize(
    ("told", "running", "configured", "window"),
    [
        (shown(parameters="num_ctx 8192"), [{"name": "m", "context_length": 16384}], {"context_window": 32768}, 32768),
        (
            shown(parameters="num_ctx 8192"),
            [],
            {"extra_body": {"options": {"num_ctx": 2048}}, "context_window": 9},
            2048,
        ),
        (shown(parameters="num_ctx 8192"), [{"model": "m:latest", "context_length": 16384}], {}, 16384),
        (shown(parameters="num_ctx 8192"), [{"name": "other", "context_length": 16384}], {}, 8192),
        (shown(parameters='stop "num_ctx 5"\nnum_ctx   8192\ntop_k 5'), [{"name": "m"}], {}, 8192),
        (shown(), [], {}, 4096),
        (shown(trained=2048), [], {}, 2048),
        (shown(trained=2048), [], {"context_window": 32768}, 2048),
        (shown() | {"remote_host": "https://example.test"}, [], {}, 131072),
        ({"model_info": 5, "parameters": [], "capabilities": "x"}, [], {}, 4096),
    ],
)
async def test_context_windows(
    told: dict[str, Any], running: list[Any], configured: dict[str, Any], window: int
) -> None:
    async with OllamaServer([says("x")]) as server:
        server.models = {"m": told}
        server.pages["/api/ps"] = page({"models": running})
        provider = provider_for(server.root, **configured)
        assert (await provider.info()).context_window == window
        await send(provider)
        assert server.prompts[0]["options"]["num_ctx"] == window
        await provider.close()


async def test_capabilities_of_a_model() -> None:
    async with OllamaServer() as server:
        for capabilities, able in [
            (("completion",), (False, False)),
            (("completion", "tools"), (True, False)),
            (("completion", "tools", "vision"), (True, True)),
            (None, (True, False)),
        ]:
            server.models = {"m": shown(capabilities)}
            provider = provider_for(server.root, max_tokens=7)
            info = await provider.info()
            assert (info.has_tool_call, info.has_images) == able
            assert info.max_tokens == 7
            await provider.close()


async def test_the_server_is_queried_once() -> None:
    async with OllamaServer([says("x"), says("y")]) as server:
        provider = provider_for(server.root)
        await provider.info()
        await send(provider)
        await send(provider)
        paths = [received.path for received in server.received]
        assert paths == ["/api/show", "/api/ps", "/api/chat", "/api/chat"]
        assert server.connections == 1
        await provider.close()
        server.received.clear()
        provider = provider_for(server.root, context_window=8192)
        await provider.info()
        assert [received.path for received in server.received] == ["/api/show"]
        await provider.close()


async def test_the_first_model_that_can_chat_is_used() -> None:
    async with OllamaServer() as server:
        embedding = {"name": "e", "capabilities": ["embedding"]}
        server.pages["/api/tags"] = page({"models": [embedding, {"name": "m", "capabilities": ["completion"]}]})
        provider = provider_for(server.root, "")
        assert (await provider.info()).model == "m"
        assert await provider.list_models() == [ModelEntry("e"), ModelEntry("m", 4096)]
        server.pages["/api/tags"] = page({"models": None})
        with pytest.raises(ProviderError, match="ollama pull") as caught:
            await provider.info()
        assert caught.value.code is Code.PROVIDER_SETUP
        await provider.close()


async def test_a_model_that_is_not_pulled_is_an_error_with_the_command() -> None:
    async with OllamaServer() as server:
        provider = provider_for(server.root, "nope")
        with pytest.raises(ProviderError, match="run `ollama pull nope`") as caught:
            await provider.info()
        assert caught.value.code is Code.NOT_FOUND
        await provider.close()
    async with OllamaServer([refusal('model "m" not found, try pulling it first', 404)], old=True) as server:
        provider = provider_for(server.root)
        _, error = await fails(provider)
        assert (error.code, error.retryable) == (Code.NOT_FOUND, False)
        assert "run `ollama pull m`" in error.message
        await provider.close()


async def test_a_stopped_server_is_an_error_with_the_command() -> None:
    async with OllamaServer() as server:
        root = server.root
    provider = provider_for(root)
    for ask in (provider.info, provider.list_models):
        with pytest.raises(ProviderError, match="run `ollama serve`") as caught:
            await ask()
        assert (caught.value.code, caught.value.retryable) == (Code.UNREACHABLE, True)
    assert "ollama serve" in (await fails(provider))[1].message
    await provider.close()
    await provider.close()


async def test_an_old_server_is_assumed_to_have_tools_but_no_images() -> None:
    async with OllamaServer([says("x"), says("y")], old=True) as server:
        provider = provider_for(server.root)
        info = await provider.info()
        assert (info.context_window, info.has_tool_call, info.has_images) == (4096, True, False)
        await send(provider, tools=(READ,))
        refused, sent = server.prompts
        assert refused.keys() - sent.keys() == {"truncate", "shift"}
        assert sent["options"] == {"num_ctx": 4096}
        await send(provider)
        assert len(server.prompts) == 3
        await provider.close()


async def test_an_invalid_key_is_an_error_that_hides_the_key() -> None:
    async with OllamaServer(key="another") as server:
        provider = provider_for(server.root, key=KEY)
        for code in (await fails(provider))[1], await _failure(provider):
            assert code.code is Code.AUTH
            assert KEY not in str(code)
        await provider.close()
    async with OllamaServer([says("x")], key=KEY) as server:
        provider = provider_for(server.root, key=KEY, headers={"X-Title": "yarrow"})
        assert await send(provider)
        assert server.received[-1].headers["x-title"] == "yarrow"
        await provider.close()


async def _failure(provider: OllamaProvider) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await provider.info()
    return caught.value


async def test_answers_that_are_not_json_are_skipped() -> None:
    async with OllamaServer([says("x")]) as server:
        server.pages["/api/ps"] = page("not json")
        provider = provider_for(server.root)
        assert (await provider.info()).context_window == 4096
        server.pages["/api/tags"] = page("not json")
        with pytest.raises(ProviderError, match="invalid JSON"):
            await provider.list_models()
        await provider.close()


class Watched(HttpClient):
    """A client that keeps what it was asked to send."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[HttpRequest] = []

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncGenerator[HttpResponse]:
        self.sent.append(request)
        async with super().send(request) as response:
            yield response


async def test_case_P_28_local_servers_have_longer_timeouts_than_the_vendors() -> None:
    limits: list[tuple[float | None, float | None]] = []
    cases: list[dict[str, Any]] = [{}, {"first_byte_timeout": 5.0, "idle_timeout": 7.0}]
    async with OllamaServer([says("x"), says("y")]) as server:
        for configured in cases:
            http = Watched()
            settings = ProviderSettings(base_url=server.root, **configured)
            provider = OllamaProvider("ollama", "m", settings=settings, key="", http=http)
            assert await send(provider)
            limits.append((http.sent[-1].timeouts.first_byte, http.sent[-1].timeouts.idle))
            await provider.close()
    assert limits == [(None, 600.0), (5.0, 7.0)]
    assert not is_hosted_ollama(server.root)


# -- address -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/", "/api", "/api/chat"])
async def test_equivalent_spellings_of_the_base_url(suffix: str) -> None:
    async with OllamaServer([says("x")]) as server:
        provider = provider_for(server.root + suffix)
        assert await send(provider)
        await provider.close()
        without = provider_for(server.root.removeprefix("http://") + suffix)
        assert await without.list_models()
        await without.close()


@pytest.mark.parametrize(
    ("configured", "root"),
    [
        ("", OLLAMA_URL),
        ("  ", OLLAMA_URL),
        ("0.0.0.0", OLLAMA_URL),
        ("0.0.0.0:1234", "http://127.0.0.1:1234"),
        (":1234", "http://127.0.0.1:1234"),
        ("http://0.0.0.0:1234", "http://127.0.0.1:1234"),
        ("box", "http://box:11434"),
        ("[::1]", "http://[::1]:11434"),
        ("::1", "http://[::1]:11434"),
        ("[::]:5", "http://[::1]:5"),
        ("https://ollama.com", "https://ollama.com"),
        ("https://box/ollama/", "https://box/ollama"),
    ],
)
def test_server_roots(configured: str, root: str) -> None:
    assert parse_ollama_root(configured) == root


def test_the_vendors_server_is_known() -> None:
    assert is_hosted_ollama("https://ollama.com")
    assert is_hosted_ollama("https://api.ollama.com:443")
    assert not is_hosted_ollama("http://notollama.com")
    assert not is_hosted_ollama("http://[")


# -- answers -------------------------------------------------------------------------------------------------------


async def test_an_answer_with_everything_in_it() -> None:
    lines = [said(thinking="hm"), said("Hel"), said("lo"), said(tool_calls=[call("read", {"path": "x"}, "a")])]
    async with OllamaServer([answer(*lines, done(prompt_eval_count=9, eval_count=2)), says("done")]) as server:
        provider = provider_for(server.root)
        events = await send(provider, tools=(READ,), thinking=ThinkingLevel.MEDIUM)
        assert events[0] == ThinkingPiece("hm", FIELD_MARK)
        assert "".join(one.text for one in events if isinstance(one, TextPiece)) == "Hello"
        assert events[-3:] == [
            CallPiece(ToolCall("a", "read", '{"path": "x"}')),
            UsagePiece(Usage(9, 2)),
            StopPiece(StopReason.TOOL_USE),
        ]
        assert server.prompts[0]["think"] is True
        await provider.close()


async def test_text_calls_are_recognized_if_tools_were_offered() -> None:
    text = '<tool_call>{"name":"read","arguments":{"path":"x"}}</tool_call>'
    async with OllamaServer([says(text)] * 4) as server:
        provider = provider_for(server.root)
        events = await send(provider, tools=(READ,))
        assert [one.call.name for one in events if isinstance(one, CallPiece)] == ["read"]
        assert events[-2:] == [UsagePiece(Usage(9, 2)), StopPiece(StopReason.TOOL_USE)]
        assert (await send(provider))[0] == TextPiece(text)
        assert (await send(provider, tools=(READ,), tool_choice="none"))[0] == TextPiece(text)
        await provider.close()
        server.models = {"m": shown(("completion",))}
        provider = provider_for(server.root)
        assert (await send(provider, tools=(READ,)))[0] == TextPiece(text)
        await provider.close()


async def test_case_P_08_an_error_inside_the_stream() -> None:
    async with OllamaServer([answer(said("Part"), line({"error": "CUDA error: out of memory"}))]) as server:
        provider = provider_for(server.root)
        events, error = await fails(provider)
        assert events == [TextPiece("Part")]
        assert (error.code, error.retryable) == (Code.SERVER_ERROR, True)
        await provider.close()


async def test_case_P_10_a_truncated_stream() -> None:
    async with OllamaServer([answer(said("is"), whole=whole) for whole in (True, False)]) as server:
        provider = provider_for(server.root)
        for _ in range(2):
            events, error = await fails(provider)
            assert events == [TextPiece("is")]
            assert (error.code, error.retryable) == (Code.STREAM_TRUNCATED, True)
        await provider.close()


async def test_events_are_yielded_as_they_arrive_without_waiting_for_the_end() -> None:
    gate = asyncio.Event()
    lines = [said("a"), gate, said("b"), done(), asyncio.Event()]
    async with OllamaServer([Reply(lines), says("next")]) as server:
        provider = provider_for(server.root)
        async with asyncio.timeout(5), aclosing(provider.stream(prompt())) as events:
            assert await anext(events) == TextPiece("a")
            gate.set()
            assert [one async for one in events] == [TextPiece("b"), StopPiece(StopReason.END_TURN)]
        await send(provider)
        await provider.close()


async def test_a_cancelled_stream_closes_its_connection() -> None:
    async with OllamaServer([answer(said("a")), says("next")]) as server:
        server.replies[0] = Reply([said("a"), asyncio.Event()])
        provider = provider_for(server.root)
        first = asyncio.Event()

        async def read() -> None:
            async for _ in provider.stream(prompt()):
                first.set()

        reading = asyncio.create_task(read())
        await first.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert (await send(provider))[0] == TextPiece("next")
        assert server.connections == 2
        await provider.close()


async def test_a_silent_server_times_out() -> None:
    async with OllamaServer([Reply([said("a"), asyncio.Event()])]) as server:
        provider = provider_for(server.root)
        events, error = await fails(provider, prompt(stream_opts=StreamOptions(idle_timeout=0.1)))
        assert events == [TextPiece("a")]
        assert (error.code, error.retryable) == (Code.STREAM_STALLED, True)
        await provider.close()


async def test_a_server_that_does_not_stream() -> None:
    whole = {"message": {"role": "assistant", "content": "whole"}, "done": True, "done_reason": "stop"}
    async with OllamaServer([page(whole), page("<html>", headers={"content-type": "text/html"})]) as server:
        provider = provider_for(server.root)
        assert await send(provider) == [TextPiece("whole"), StopPiece(StopReason.END_TURN)]
        _, error = await fails(provider)
        assert error.code is Code.MALFORMED_RESPONSE
        assert "baseUrl" in error.message
        await provider.close()


async def test_case_P_24_the_requested_delay() -> None:
    busy = "server busy, please try again.  maximum pending requests exceeded"
    async with OllamaServer([page({"error": busy}, 503, {"retry-after": "2"})]) as server:
        provider = provider_for(server.root)
        _, error = await fails(provider)
        assert (error.code, error.retryable, error.retry_after) == (Code.OVERLOADED, True, 2.0)
        await provider.close()


async def test_a_too_long_conversation_is_an_overflow_not_truncated() -> None:
    text = "the prompt is longer than the context length currently available to the model; shift is disabled"
    async with OllamaServer([refusal(text)]) as server:
        provider = provider_for(server.root)
        _, error = await fails(provider)
        assert (error.code, error.retryable) == (Code.CONTEXT_OVERFLOW, False)
        assert len(server.prompts) == 1
        await provider.close()


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lack", "field"), [("thinking", "think"), ("tools", "tools")])
async def test_unsupported_features_are_omitted_afterwards(lack: str, field: str) -> None:
    async with OllamaServer([says("x"), says("y")]) as server:
        server.lacks = frozenset({lack})
        provider = provider_for(server.root)
        notices: list[str] = []
        for _ in range(2):
            events = await send(provider, tools=(READ,), thinking=ThinkingLevel.HIGH)
            notices += [event.code for event in events if isinstance(event, NoticePiece)]
            assert len(events) > len(notices)
        assert [field in sent for sent in server.prompts] == [True, False, False]
        assert notices == (["NO_TOOLS"] if field == "tools" else [])
        await provider.close()


async def test_an_unknown_thinking_level_is_omitted() -> None:
    wordings = [
        'think value "low" is not supported for this model',
        "json: cannot unmarshal string into Go struct field ChatRequest.think of type bool",
    ]
    for wording in wordings:
        async with OllamaServer([refusal(wording), says("x")]) as server:
            server.models = {"m": shown() | {"details": {"family": "gptoss"}}}
            provider = provider_for(server.root)
            assert await send(provider)
            assert [sent.get("think") for sent in server.prompts] == ["low", None]
            await provider.close()


async def test_repeated_rejections_end_in_an_error() -> None:
    async with OllamaServer([refusal('"m" does not support thinking')] * 9) as server:
        provider = provider_for(server.root)
        _, error = await fails(provider)
        assert error.code is Code.UNSUPPORTED_FEATURE
        assert ["think" in sent for sent in server.prompts] == [True, False]
        await provider.close()


async def test_another_rejection_is_an_error() -> None:
    late = answer(said("x"), line({"error": '"m" does not support thinking'}))
    for reply in (refusal("invalid temperature"), refusal("model requires more memory, shift or think", 500), late):
        async with OllamaServer([reply]) as server:
            provider = provider_for(server.root)
            await fails(provider)
            assert len(server.prompts) == 1
            await provider.close()


async def test_case_T_12_an_image_that_is_rejected_later_becomes_a_note() -> None:
    async with OllamaServer([refusal("failed to decode image: unknown format"), says("x"), says("y")]) as server:
        provider = provider_for(server.root)
        history = (user(Text("look"), PNG), Message(id="a", role=Role.ASSISTANT, content=(Text("ok"),), timestamp=""))
        for _ in range(2):
            assert await send(provider, *history, user(Text("and now?")))
        assert ["images" in sent["messages"][0] for sent in server.prompts] == [True, False, False]
        assert HIDDEN_IMAGE in server.prompts[1]["messages"][0]["content"]
        await provider.close()


# -- what a server does in silence ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reported", "told"),
    [(2051, ["PROMPT_CUT"]), (15000, []), (40, []), (0, [])],
    ids=["cut", "read", "cached", "all-cached"],
)
async def test_case_P_13_a_server_that_truncated_the_prompt(reported: int, told: list[str]) -> None:
    replies = [answer(said("x"), done(prompt_eval_count=reported, eval_count=2)) for _ in range(2)]
    async with OllamaServer(replies) as server:
        provider = provider_for(server.root, context_window=32768)
        notices: list[NoticePiece] = []
        for _ in range(2):
            events = await send(provider, user(Text("word " * 12_000)))
            notices += [event for event in events if isinstance(event, NoticePiece)]
        assert [notice.code for notice in notices] == told
        assert all("reports 2051" in notice.text for notice in notices)
        assert server.prompts[0]["options"]["num_ctx"] == 32768
        await provider.close()
