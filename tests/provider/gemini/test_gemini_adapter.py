"""The Gemini adapter, through the vendor's library, over a strict loopback server."""

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from importlib.util import find_spec
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from doubles.chat_server import Reply, page
from doubles.completions import GOOGLE_KEY, fails, prompt, stream
from doubles.conversation import user
from doubles.gemini_server import GeminiServer, call, chunk, refusal, says, text
from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.message import Block, Image, Message, Opaque, Role, StopReason, Text, ToolCall, ToolSpec, Usage
from yarrow.provider.base import (
    AdapterConfig,
    CallPiece,
    CompletionRequest,
    ListsModels,
    ModelEntry,
    OpaquePiece,
    ProviderEvent,
    StopPiece,
    StreamOptions,
    TextPiece,
    ThinkingPiece,
    UsagePiece,
)
from yarrow.provider.base_urls import GeminiAddress, is_local, is_vendor_url, parse_gemini_address
from yarrow.provider.gemini import client
from yarrow.provider.gemini.adapter import DEFAULT_CONTEXT_WINDOW, MAX_PAGES, GeminiProvider, build
from yarrow.provider.history_repair import HIDDEN_IMAGE
from yarrow.provider.http.client import HttpClient

WIRE = Path(__file__).parents[2] / "fixtures/wire"
CAPTURES = sorted((WIRE / "gemini-style").glob("*.sse"))
ERRORS: list[dict[str, Any]] = json.loads((WIRE / "http-errors.json").read_text("utf-8"))
PNG = Image("image/png", "iVBORw0KGgo=")
READ = ToolSpec("read", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})


def provider_for(server: GeminiServer, model: str = "m", *, key: str = "", **settings: Any) -> GeminiProvider:
    values: dict[str, Any] = {"base_url": server.root, **settings}
    return GeminiProvider("acme", model, settings=ProviderSettings(**values), key=key, http=HttpClient())


@pytest.fixture
async def server() -> AsyncGenerator[GeminiServer]:
    async with GeminiServer(key=GOOGLE_KEY) as running:
        yield running


@pytest.fixture
async def provider(server: GeminiServer) -> AsyncGenerator[GeminiProvider]:
    made = provider_for(server, key=GOOGLE_KEY)
    yield made
    await made.close()


# -- captures ------------------------------------------------------------------------------------------------------


def normal(events: list[ProviderEvent], error: ProviderError | None) -> list[dict[str, Any]]:
    """The events as the captures write them; neighbouring deltas are joined, opaque data is left out."""
    result: list[dict[str, Any]] = []
    for one in events:
        match one:
            case TextPiece(words) | ThinkingPiece(words):
                kind = "text_delta" if isinstance(one, TextPiece) else "thinking_delta"
                if result and result[-1]["kind"] == kind:
                    result[-1]["text"] += words
                else:
                    result.append({"kind": kind, "text": words})
            case CallPiece(made):
                arguments = json.loads(made.arguments)
                result.append({"kind": "tool_call", "id": made.id, "name": made.name, "arguments": arguments})
            case UsagePiece(Usage(fresh, output, read, written)):
                counts = {"input": fresh, "output": output, "cache_read": read, "cache_write": written}
                result.append({"kind": "usage", **counts})
            case StopPiece(reason):
                result.append({"kind": "stop", "reason": reason.value})
            case _:
                pass
    if error is not None:
        result.append({"kind": "error", "code": error.code.value.lower(), "retryable": error.retryable})
    return result


def expected(capture: Path) -> list[dict[str, Any]]:
    wanted = json.loads(capture.with_suffix(".expected.json").read_text("utf-8"))["events"]
    if wanted[-1]["kind"] == "error":
        wanted = [one for one in wanted if one["kind"] != "usage"]
        wanted[-1].pop("message")
    return wanted


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 64, 1000])
@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
async def test_recordings_are_decoded(server: GeminiServer, provider: GeminiProvider, capture: Path, size: int) -> None:
    raw = capture.read_bytes()
    step = size or len(raw)
    server.replies = [Reply([raw[at : at + step] for at in range(0, len(raw), step)])]
    events: list[ProviderEvent] = []
    error: ProviderError | None = None
    try:
        async for one in provider.stream(prompt()):
            events.append(one)  # noqa: PERF401 - a comprehension would lose them with the failure
    except ProviderError as failure:
        error = failure
    got, wanted = normal(events, error), expected(capture)
    for one, other in zip(got, wanted, strict=True):
        if other.get("id") == "*":
            assert one["id"]
            other["id"] = one["id"]
    assert got == wanted
    ids = [one["id"] for one in got if one["kind"] == "tool_call"]
    assert len(ids) == len(set(ids))


async def test_an_error_inside_the_stream_has_its_message(server: GeminiServer, provider: GeminiProvider) -> None:
    server.replies = [Reply([(WIRE / "gemini-style/05-error-midstream.sse").read_bytes()])]
    _, error = await fails(provider)
    assert "The model is overloaded. Please try again later." in error.message


async def answered(provider: GeminiProvider, number: str, server: GeminiServer) -> Message:
    """The message that an agent would store for a capture."""
    [capture] = [path for path in CAPTURES if path.name.startswith(number)]
    server.replies = [Reply([capture.read_bytes()]), says("next")]
    blocks: list[Block] = []
    for one in await stream(provider):
        match one:
            case TextPiece(words):
                if blocks and isinstance(blocks[-1], Text):
                    blocks[-1] = Text(blocks[-1].text + words)
                else:
                    blocks.append(Text(words))
            case CallPiece(made):
                blocks.append(made)
            case OpaquePiece(data):
                blocks.append(Opaque(data))
            case _:
                pass
    return Message(id="a", role=Role.ASSISTANT, content=tuple(blocks), timestamp="", provider="acme", model="m")


def result(call_id: str, words: str = "ok") -> Message:
    return Message(id="r", role=Role.TOOL, content=(Text(words),), timestamp="", tool_call_id=call_id)


@pytest.mark.parametrize("number", ["02", "03", "04"])
async def test_case_P_22_signatures_are_sent_back_on_their_part(
    server: GeminiServer, provider: GeminiProvider, number: str
) -> None:
    message = await answered(provider, number, server)
    results = [result(made.id) for made in message.tool_calls]
    await stream(provider, prompt(user("hi"), message, *results, user("more")))
    [capture] = [path for path in CAPTURES if path.name.startswith(number)]
    said = [
        part
        for line in capture.read_text("utf-8").splitlines()
        if line.startswith("data: ")
        for part in json.loads(line[6:])["candidates"][0]["content"]["parts"]
        if part != {"text": ""} and not part.get("thought")
    ]
    assert server.prompts[-1]["contents"][1] == {"role": "model", "parts": said}
    responses = [part["functionResponse"] for part in server.prompts[-1]["contents"][2]["parts"][:-1]]
    ids = [part["functionCall"].get("id") for part in said if "functionCall" in part]
    assert [response.get("id") for response in responses] == ids


# -- requests ------------------------------------------------------------------------------------------------------


async def test_the_request(server: GeminiServer, provider: GeminiProvider) -> None:
    server.replies = [says("Hello")]
    events = await stream(provider, prompt(system="Be brief.", tools=(READ,), max_tokens=7, temperature=0.5))
    assert events == [TextPiece("Hello"), UsagePiece(Usage(9, 2)), StopPiece(StopReason.END_TURN)]
    [received] = server.received
    assert received.path == "/v1beta/models/m:streamGenerateContent?alt=sse"
    assert received.headers["accept-encoding"] == "identity"
    body = received.json
    assert body["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]
    assert body["systemInstruction"]["parts"] == [{"text": "Be brief."}]
    assert body["generationConfig"] == {"maxOutputTokens": 7, "temperature": 0.5}
    [declared] = body["tools"][0]["functionDeclarations"]
    assert declared.pop("parameters_json_schema") == READ.parameters
    assert declared == {"name": "read", "description": "Reads a file."}


async def test_settings_and_the_configured_body(server: GeminiServer) -> None:
    server.replies = [says("x")]
    extra = {"generationConfig": {"topK": 5}}
    provider = provider_for(
        server, key=GOOGLE_KEY, max_tokens=77, temperature=9.0, extra_body=extra, headers={"X-Title": "yarrow"}
    )
    await stream(provider)
    await provider.close()
    assert server.prompts[0]["generationConfig"] == {"maxOutputTokens": 77, "temperature": 2.0, "topK": 5}
    assert server.received[0].headers["x-title"] == "yarrow"


async def test_an_environment_key_is_not_sent_to_other_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", GOOGLE_KEY)
    monkeypatch.setenv("GEMINI_API_KEY", GOOGLE_KEY)
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:9")
    async with GeminiServer([says("x")]) as server:
        provider = provider_for(server)
        await stream(provider)
        await provider.close()
        [received] = server.received
        assert "x-goog-api-key" not in received.headers
        assert GOOGLE_KEY not in str(received)


async def test_nothing_is_written_to_the_terminal(
    server: GeminiServer, provider: GeminiProvider, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "a")
    monkeypatch.setenv("GEMINI_API_KEY", "b")
    server.replies = [Reply([chunk(text("x"), finish="A_NEW_REASON")])]
    assert await stream(provider) == [TextPiece("x"), StopPiece(StopReason.OTHER)]
    assert capfd.readouterr() == ("", "")


async def test_a_connection_is_reused(server: GeminiServer, provider: GeminiProvider) -> None:
    server.replies = [says("one"), says("two")]
    await stream(provider)
    await stream(provider)
    assert server.connections == 1


async def test_case_T_12_rejected_images_are_omitted_once(server: GeminiServer, provider: GeminiProvider) -> None:
    server.replies = [refusal("Unable to process input image."), says("x"), says("y")]
    history = (user(PNG), user("what is it?"))
    assert (await stream(provider, prompt(*history)))[0] == TextPiece("x")
    assert len(server.prompts) == 2
    await stream(provider, prompt(*history))
    assert server.prompts[-1]["contents"][0]["parts"] == [{"text": HIDDEN_IMAGE}, {"text": "what is it?"}]


# -- answers -------------------------------------------------------------------------------------------------------


async def test_events_are_yielded_as_they_arrive(server: GeminiServer, provider: GeminiProvider) -> None:
    gate = asyncio.Event()
    server.replies = [Reply([chunk(text("a")), gate, chunk(text("b"), finish="STOP")])]
    async with aclosing(provider.stream(prompt())) as events:
        assert await anext(events) == TextPiece("a")
        gate.set()
        assert [one async for one in events] == [TextPiece("b"), StopPiece(StopReason.END_TURN)]


async def test_chunk_size_joins_deltas(server: GeminiServer, provider: GeminiProvider) -> None:
    server.replies = [Reply([*(chunk(text(letter)) for letter in "abcd"), chunk(finish="STOP")])] * 2
    events = await stream(provider, prompt(stream_opts=StreamOptions(chunk_size=100)))
    assert events == [TextPiece("abcd"), StopPiece(StopReason.END_TURN)]
    events = await stream(provider, prompt(stream_opts=StreamOptions(chunk_size=3)))
    assert events == [TextPiece("abc"), TextPiece("d"), StopPiece(StopReason.END_TURN)]


async def test_buffered_text_precedes_a_failure(server: GeminiServer, provider: GeminiProvider) -> None:
    for whole in (True, False):
        server.replies = [Reply([chunk(text("half"))], whole=whole)]
        events, error = await fails(provider, prompt(stream_opts=StreamOptions(chunk_size=100)))
        assert events == [TextPiece("half")]
        assert (error.code, error.retryable) == (Code.STREAM_TRUNCATED, True)


async def test_an_error_after_the_finish_reason_is_ignored(server: GeminiServer, provider: GeminiProvider) -> None:
    server.replies = [
        Reply([chunk(text("4"), finish="STOP")], whole=False),
        Reply([chunk(text("5"), finish="STOP"), b"data: {\n\n"]),
        Reply([chunk(text("6"), finish="STOP"), asyncio.Event()]),
    ]
    async with asyncio.timeout(5):
        for words in "456":
            assert await stream(provider) == [TextPiece(words), StopPiece(StopReason.END_TURN)]


async def test_unknown_framing_is_an_error(server: GeminiServer, provider: GeminiProvider) -> None:
    first = chunk(text("a")).replace(b"data: ", b": ping\r\nevent: message\r\nid: 1\r\ndata:")
    last = b'data: {"candidates":\ndata: [{"finishReason":"STOP","content":{"parts":[{"text":"b"}]}}]}\n\n'
    server.replies = [Reply([b": hello\n\n", first, last])]
    assert await stream(provider) == [TextPiece("a"), TextPiece("b"), StopPiece(StopReason.END_TURN)]


@pytest.mark.parametrize("data", [b"data: {\n\n", b"data: 5\n\n", b"data: \xff\n\n", b'data: {"candidates":5}\n\n'])
async def test_responses_that_are_not_answers(server: GeminiServer, provider: GeminiProvider, data: bytes) -> None:
    server.replies = [Reply([chunk(text("a")), data])]
    events, error = await fails(provider)
    assert events == [TextPiece("a")]
    assert (error.code, error.retryable) == (Code.MALFORMED_RESPONSE, True)


async def test_a_server_that_does_not_stream(server: GeminiServer, provider: GeminiProvider) -> None:
    content = {"parts": [{"text": "whole"}], "role": "model"}
    server.replies = [page({"candidates": [{"content": content, "finishReason": "STOP"}]})]
    assert await stream(provider) == [TextPiece("whole"), StopPiece(StopReason.END_TURN)]


async def test_an_error_with_status_200(server: GeminiServer, provider: GeminiProvider) -> None:
    server.replies = [page({"error": {"message": "slow down", "code": 429, "status": "RESOURCE_EXHAUSTED"}})]
    _, error = await fails(provider)
    assert (error.code, error.retryable) == (Code.RATE_LIMIT, True)


async def test_a_web_page_is_not_an_answer(server: GeminiServer, provider: GeminiProvider) -> None:
    server.replies = [Reply([b"<html>Welcome"], headers={"content-type": "text/html"})]
    _, error = await fails(provider)
    assert (error.code, error.retryable) == (Code.MALFORMED_RESPONSE, False)
    assert "baseUrl" in error.message


async def test_a_call_gets_its_own_id(server: GeminiServer, provider: GeminiProvider) -> None:
    server.replies = [Reply([chunk(call("ls", call_id="a"), call("ls", call_id="a"), call("ls"), finish="STOP")])]
    made = [one.call for one in await stream(provider) if isinstance(one, CallPiece)]
    assert made[0] == ToolCall("a", "ls", "{}", opaque='{"id":"a"}')
    assert len({one.id for one in made}) == 3
    assert [one.opaque for one in made[1:]] == ["", ""]


# -- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row", [row for row in ERRORS if row["provider"] == "gemini-style"], ids=lambda row: row["expected"]["code"]
)
async def test_an_error_before_the_stream(server: GeminiServer, provider: GeminiProvider, row: Any) -> None:
    server.replies = [page(row["body"], row["status"], row["headers"])]
    events, error = await fails(provider)
    wanted = row["expected"]
    assert events == []
    assert (error.code.value.lower(), error.retryable) == (wanted["code"], wanted["retryable"])
    assert (error.retry_after, error.context_window) == (wanted["retry_after_s"], wanted["context_window"] or 0)
    assert len(server.prompts) == 1


async def test_an_invalid_key_is_an_error_that_hides_the_key() -> None:
    async with GeminiServer(key="another") as server:
        provider = provider_for(server, key=GOOGLE_KEY)
        _, error = await fails(provider)
        assert error.code is Code.AUTH
        assert GOOGLE_KEY not in repr(vars(provider))
        await provider.close()


async def test_an_unreachable_server_is_reported_with_its_address() -> None:
    async with GeminiServer() as server:
        root = server.root
    provider = provider_for(server, key=GOOGLE_KEY)
    _, error = await fails(provider)
    assert (error.code, error.retryable) == (Code.UNREACHABLE, True)
    assert root.removeprefix("http://") in error.message
    await provider.close()
    await provider.close()


async def test_requests_that_the_library_rejects(server: GeminiServer, provider: GeminiProvider) -> None:
    request = CompletionRequest(model="m?x=1", messages=(user("hi"),))
    _, error = await fails(provider, request)
    assert (error.code, error.retryable) == (Code.INVALID_REQUEST, False)
    assert server.received == []


async def test_a_silent_server_times_out(server: GeminiServer, provider: GeminiProvider) -> None:
    server.replies = [Reply([chunk(text("a")), asyncio.Event()])]
    events, error = await fails(provider, prompt(stream_opts=StreamOptions(idle_timeout=0.1)))
    assert events == [TextPiece("a")]
    assert (error.code, error.retryable) == (Code.STREAM_STALLED, True)


# -- an end before the end -----------------------------------------------------------------------------------------


async def test_a_cancelled_stream_closes_its_connection(server: GeminiServer, provider: GeminiProvider) -> None:
    server.replies = [Reply([chunk(text("a")), asyncio.Event()]), says("next")]
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


async def test_an_abandoned_stream_is_cleaned_up(server: GeminiServer, provider: GeminiProvider) -> None:
    """The library's generators would each become a task to close them, were they left to the collector."""
    made: list[object] = []
    loop = asyncio.get_running_loop()
    tasks = asyncio.all_tasks()
    endless: Any = chain([chunk(text("a")) + chunk(text("b")) + chunk(text("c"))], repeat(b": ping\n\n"))
    server.replies = [Reply(endless)]
    events = provider.stream(prompt())
    assert await anext(events) == TextPiece("a")
    serving = asyncio.all_tasks() - tasks
    loop.set_task_factory(lambda loop, coroutine, **more: made.append(coroutine) or asyncio.Task(coroutine, loop=loop))
    await events.aclose()
    gc.collect()
    await asyncio.sleep(0)
    loop.set_task_factory(None)
    assert made == []
    async with asyncio.timeout(5):
        while server.connected:
            await asyncio.sleep(0)
    assert asyncio.all_tasks() - tasks <= serving


# -- models --------------------------------------------------------------------------------------------------------


def model(name: str, window: int = 0, *actions: str) -> dict[str, Any]:
    limits = {"inputTokenLimit": window, "outputTokenLimit": 65_536} if window else {}
    return {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": list(actions), **limits}


async def test_models_are_listed(server: GeminiServer, provider: GeminiProvider) -> None:
    first = [model("gemini-a", 1_048_576, "generateContent", "countTokens"), model("embed", 2048, "embedContent")]
    server.pages["/v1beta/models?pageSize=1000"] = page({"models": first, "nextPageToken": "p 2"})
    server.pages["/v1beta/models?pageSize=1000&pageToken=p+2"] = page({"models": [model("gemini-b")], "novel": 1})
    assert isinstance(provider, ListsModels)
    assert await provider.list_models() == [ModelEntry("gemini-a", 1_048_576), ModelEntry("gemini-b")]


async def test_an_endless_list_is_bounded(server: GeminiServer, provider: GeminiProvider) -> None:
    endless = page({"models": [model("x")], "nextPageToken": "p"})
    server.pages["/v1beta/models?pageSize=1000"] = server.pages["/v1beta/models?pageSize=1000&pageToken=p"] = endless
    assert len(await provider.list_models()) == MAX_PAGES


async def test_a_rejected_list_is_an_error(server: GeminiServer, provider: GeminiProvider) -> None:
    with pytest.raises(ProviderError) as caught:
        await provider.list_models()
    assert caught.value.code is Code.NOT_FOUND


async def test_capabilities_of_a_model(server: GeminiServer) -> None:
    server.pages["/v1beta/models/m"] = page(model("m", 2_000_000, "generateContent"))
    for configured, wanted in ((0, 2_000_000), (5, 5)):
        provider = provider_for(server, key=GOOGLE_KEY, context_window=configured)
        info = await provider.info()
        await provider.close()
        assert (info.name, info.model, info.context_window, info.max_tokens) == ("acme", "m", wanted, 65_536)
        assert (info.has_images, info.has_tool_call) == (True, True)


@pytest.mark.parametrize("reply", [None, page({"name": "models/m"}), page("nonsense")])
async def test_no_details_of_the_model(server: GeminiServer, provider: GeminiProvider, reply: Reply | None) -> None:
    if reply is not None:
        server.pages["/v1beta/models/m"] = reply
    assert (await provider.info()).context_window == DEFAULT_CONTEXT_WINDOW


async def test_a_model_must_be_named(server: GeminiServer) -> None:
    provider = provider_for(server, "")
    with pytest.raises(ProviderError, match="-m") as caught:
        await provider.info()
    assert caught.value.code is Code.PROVIDER_SETUP


# -- the library ---------------------------------------------------------------------------------------------------


def test_the_library_is_not_imported_before_it_is_needed() -> None:
    code = (
        "import sys, yarrow.provider.gemini.adapter; print(sorted({'google', 'httpx2', 'pydantic'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


async def test_a_missing_library_is_reported(provider: GeminiProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yarrow.provider.gemini.httpx_transport", None)
    for ask in (provider.info(), provider.list_models(), stream(provider)):
        with pytest.raises(ProviderError, match=r"pip install '\.\[gemini\]'") as caught:
            await ask
        assert (caught.value.code, caught.value.retryable) == (Code.PROVIDER_SETUP, False)
        assert sys.executable in caught.value.message
        assert "httpx_transport" not in caught.value.message


async def test_a_missing_key_and_a_missing_library_are_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "find_spec", lambda name: None if name == client.LIBRARY else find_spec(name))
    with pytest.raises(ProviderError) as caught:
        await build(AdapterConfig("gemini", "m", ProviderSettings(), {}))
    assert caught.value.code is Code.PROVIDER_SETUP
    assert all(part in caught.value.message for part in ("GEMINI_API_KEY", "pip install '.[gemini]'"))


# -- where ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "base", "version"),
    [
        ("", "https://generativelanguage.googleapis.com", "v1beta"),
        ("https://generativelanguage.googleapis.com/v1beta/", "https://generativelanguage.googleapis.com", "v1beta"),
        ("http://h:1/proxy/v1", "http://h:1/proxy", "v1"),
        (" http://h/v1alpha ", "http://h", "v1alpha"),
        ("http://h/vendor", "http://h/vendor", "v1beta"),
    ],
)
def test_base_urls(url: str, base: str, version: str) -> None:
    assert parse_gemini_address(url) == GeminiAddress(base, version)


@pytest.mark.parametrize(
    ("url", "official", "local"),
    [
        ("", True, False),
        ("https://GenerativeLanguage.googleapis.com/v1beta", True, False),
        ("http://generativelanguage.googleapis.com", False, False),
        ("https://generativelanguage.googleapis.com.evil.example", False, False),
        ("http://localhost:1", False, True),
        ("http://[::1", False, False),
    ],
)
def test_known_hosts_have_their_settings(url: str, official: bool, local: bool) -> None:
    assert (is_vendor_url(url, "gemini"), is_local(url)) == (official, local)
