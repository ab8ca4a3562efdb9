"""The contract of every adapter: the same tests for each of one table, over a strict loopback server."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

import pytest

from doubles.chat_server import DONE, ChatServer, Reply, chunk, event, finish, page, says, usage
from doubles.completions import KEY, fails, prompt, stream
from doubles.conversation import user
from doubles.responses_server import ResponsesServer, end, message_item, response, sse
from doubles.responses_server import says as says_in_responses
from doubles.responses_server import usage as count_in_responses
from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.message import Message, Opaque, Role, StopReason, Text, Thinking, ToolCall, ToolSpec, Usage
from yarrow.provider import transport
from yarrow.provider.base import (
    CallPiece,
    CompletionRequest,
    ListsModels,
    ModelEntry,
    Provider,
    StopPiece,
    StreamOptions,
    TextPiece,
    ThinkingPiece,
    UsagePiece,
)
from yarrow.provider.http.client import HttpClient
from yarrow.provider.llamacpp.adapter import LlamaCppProvider
from yarrow.provider.openai.adapter import OpenAiProvider
from yarrow.provider.responses.adapter import ResponsesProvider

ADAPTERS: dict[str, Callable[..., Provider]] = {"openai": OpenAiProvider, "llamacpp": LlamaCppProvider}
"""Adapters of chat completions."""


class Wire(NamedTuple):
    """An adapter, and how its server words the parts of an answer."""

    adapter: Callable[..., Provider]
    server: Callable[..., ChatServer]
    says: Callable[[str], Reply]
    delta: Callable[[str], bytes]
    finish: bytes
    """The event with the reason why the answer ended."""
    last: Sequence[bytes]
    """Events after the one with the reason."""
    failure: bytes
    body: dict[str, Any]
    """The answer `whole` of a server that does not stream, of 4 and 1 tokens."""
    path: str


CHAT_BODY = {
    "choices": [{"message": {"role": "assistant", "content": "whole"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 4, "completion_tokens": 1},
}
CHAT = Wire(
    OpenAiProvider,
    ChatServer,
    says,
    delta=lambda text: chunk({"content": text}),
    finish=finish("stop"),
    last=[DONE],
    failure=event({"error": {"code": 502, "message": "upstream"}}),
    body=CHAT_BODY,
    path="/v1/chat/completions",
)
RESPONSES = Wire(
    ResponsesProvider,
    ResponsesServer,
    says_in_responses,
    delta=lambda text: sse("response.output_text.delta", item_id="msg_1", output_index=0, content_index=0, delta=text),
    finish=end(),
    last=[],
    failure=sse("error", code="server_error", message="upstream", param=None),
    body=response("completed", [message_item("whole")], usage=count_in_responses(4, 1)),
    path="/v1/responses",
)
WIRES = {"openai": CHAT, "llamacpp": CHAT._replace(adapter=LlamaCppProvider), "responses": RESPONSES}


class Pair(NamedTuple):
    """An adapter and the server it talks to."""

    provider: Provider
    server: ChatServer
    wire: Wire = CHAT


@pytest.fixture(params=ADAPTERS)
async def chat(request: pytest.FixtureRequest) -> AsyncGenerator[Pair]:
    async with ChatServer(key=KEY) as server:
        settings = ProviderSettings(base_url=server.root)
        provider = ADAPTERS[request.param]("acme", "m", settings=settings, key=KEY, http=HttpClient())
        yield Pair(provider, server)
        await provider.close()


@pytest.fixture(params=WIRES)
async def pair(request: pytest.FixtureRequest) -> AsyncGenerator[Pair]:
    wire = WIRES[request.param]
    async with wire.server(key=KEY) as server:
        settings = ProviderSettings(base_url=server.root)
        provider = wire.adapter("acme", "m", settings=settings, key=KEY, http=HttpClient())
        yield Pair(provider, server, wire)
        await provider.close()


READ = ToolSpec("read", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})


async def test_an_answer_of_text(chat: Pair) -> None:
    chat.server.replies = [
        Reply([chunk({"content": "Hel"}), chunk({"content": "lo"}), finish("stop"), usage(9, 2), DONE])
    ]
    events = await stream(chat.provider, prompt("hi", system="Be brief.", tools=(READ,)))
    assert "".join(one.text for one in events if isinstance(one, TextPiece)) == "Hello"
    assert events[-2:] == [UsagePiece(Usage(9, 2)), StopPiece(StopReason.END_TURN)]
    [body] = chat.server.prompts
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert body["tools"] == [
        {
            "type": "function",
            "function": {"name": "read", "description": "Reads a file.", "parameters": READ.parameters},
        }
    ]
    assert (body["model"], body["stream"], body["stream_options"]) == ("m", True, {"include_usage": True})


async def test_thinking_a_call_and_its_result(chat: Pair) -> None:
    call = {"index": 0, "id": "a", "function": {"name": "read", "arguments": '{"path":"x"}'}}
    first = [chunk({"reasoning_content": "hm"}), chunk({"tool_calls": [call]}), finish("tool_calls"), DONE]
    chat.server.replies = [Reply(first), says("done")]
    events = await stream(chat.provider)
    assert events == [
        ThinkingPiece("hm", '{"field":"reasoning_content"}'),
        CallPiece(ToolCall("a", "read", '{"path":"x"}')),
        StopPiece(StopReason.TOOL_USE),
    ]
    content = (Thinking("hm", '{"field":"reasoning_content"}'), ToolCall("a", "read", '{"path":"x"}'))
    answer = Message(id="1", role=Role.ASSISTANT, content=content, timestamp="", provider="acme", model="m")
    result = Message(id="2", role=Role.TOOL, content=(Text("text"),), timestamp="", tool_call_id="a", tool_name="read")
    await stream(chat.provider, CompletionRequest(model="m", messages=(user("hi"), answer, result)))
    assert chat.server.prompts[-1]["messages"][1]["reasoning_content"] == "hm"
    assert chat.server.prompts[-1]["messages"][2] == {"role": "tool", "tool_call_id": "a", "content": "text"}


async def test_an_irregular_history_becomes_a_valid_request(pair: Pair) -> None:
    """The server checks the rules; what it refuses fails here."""
    pair.server.replies = [pair.wire.says("ok")]
    history = (
        Message(id="1", role=Role.TOOL, content=(), timestamp="", tool_call_id="z"),
        Message(id="2", role=Role.ASSISTANT, content=(ToolCall("", "a.b", "{"), Opaque("{}")), timestamp=""),
        Message(id="3", role=Role.ASSISTANT, content=(Text("half"),), timestamp="", incomplete=True),
        Message(id="4", role=Role.USER, content=(Text(" "), Text("\ud83c")), timestamp=""),
    )
    assert await stream(pair.provider, CompletionRequest(model="m", messages=history))


async def test_a_connection_is_reused(pair: Pair) -> None:
    pair.server.replies = [pair.wire.says("one"), pair.wire.says("two")]
    await stream(pair.provider)
    await stream(pair.provider)
    assert pair.server.connections == 1


async def test_case_P_10_a_truncated_stream(pair: Pair) -> None:
    for whole in (True, False):
        pair.server.replies = [Reply([pair.wire.delta("The answer is")], whole=whole)]
        events, error = await fails(pair.provider)
        assert events == [TextPiece("The answer is")]
        assert (error.code, error.retryable) == (Code.STREAM_TRUNCATED, True)


async def test_case_P_10_an_error_after_the_finish_reason_is_ignored(pair: Pair) -> None:
    pair.server.replies = [Reply([pair.wire.delta("4"), pair.wire.finish], whole=False)]
    assert await stream(pair.provider) == [TextPiece("4"), StopPiece(StopReason.END_TURN)]


async def test_a_server_that_leaves_the_body_open_is_not_waited_for(pair: Pair) -> None:
    pair.server.replies = [Reply([pair.wire.delta("4"), pair.wire.finish, *pair.wire.last, asyncio.Event()])]
    async with asyncio.timeout(5):
        assert (await stream(pair.provider))[-1] == StopPiece(StopReason.END_TURN)


async def test_events_are_yielded_as_they_arrive(pair: Pair) -> None:
    gate = asyncio.Event()
    pair.server.replies = [Reply([pair.wire.delta("a"), gate, pair.wire.delta("b"), pair.wire.finish, *pair.wire.last])]
    async with aclosing(pair.provider.stream(prompt())) as events:
        assert await anext(events) == TextPiece("a")
        gate.set()
        assert [one async for one in events] == [TextPiece("b"), StopPiece(StopReason.END_TURN)]


async def test_chunk_size_joins_deltas(pair: Pair) -> None:
    pair.server.replies = [Reply([*(pair.wire.delta(letter) for letter in "abcd"), pair.wire.finish, *pair.wire.last])]
    events = await stream(pair.provider, prompt(stream_opts=StreamOptions(chunk_size=100)))
    assert events == [TextPiece("abcd"), StopPiece(StopReason.END_TURN)]


async def test_a_cancelled_stream_closes_its_connection(pair: Pair) -> None:
    pair.server.replies = [Reply([pair.wire.delta("a"), asyncio.Event()]), pair.wire.says("next")]
    first = asyncio.Event()

    async def read() -> None:
        async for _ in pair.provider.stream(prompt()):
            first.set()

    reading = asyncio.create_task(read())
    await first.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await stream(pair.provider) == [TextPiece("next"), StopPiece(StopReason.END_TURN)]
    assert pair.server.connections == 2


async def test_a_silent_server_times_out(pair: Pair) -> None:
    pair.server.replies = [Reply([pair.wire.delta("a"), asyncio.Event()])]
    events, error = await fails(pair.provider, prompt(stream_opts=StreamOptions(idle_timeout=0.1)))
    assert events == [TextPiece("a")]
    assert (error.code, error.retryable) == (Code.STREAM_STALLED, True)


async def test_an_error_before_the_stream(pair: Pair) -> None:
    message = "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it"
    pair.server.replies = [page({"error": {"message": message, "type": "exceed_context_size_error"}}, 400)]
    events, error = await fails(pair.provider)
    assert (events, error.code, error.context_window) == ([], Code.CONTEXT_OVERFLOW, 8192)
    assert len(pair.server.prompts) == 1


async def test_an_endless_error_body_is_classified_by_its_status(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_REFUSAL_SECONDS", 0.2)
    pair.server.replies = [Reply([b"no such ", asyncio.Event()], 401)]
    _, error = await fails(pair.provider)
    assert (error.code, error.status) == (Code.AUTH, 401)
    assert "no such" in error.message


async def test_a_truncated_error_body_is_classified_by_its_status(pair: Pair) -> None:
    pair.server.replies = [Reply([b"the key is "], 401, whole=False)]
    _, error = await fails(pair.provider)
    assert (error.code, error.retryable) == (Code.AUTH, False)


async def test_a_never_ending_model_list_is_abandoned(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_QUESTION_SECONDS", 0.2)
    pair.server.pages["/v1/models"] = Reply([b'{"data":', asyncio.Event()])
    assert isinstance(pair.provider, ListsModels)
    with pytest.raises(ProviderError, match=r"did not answer \S*models within") as caught:
        await pair.provider.list_models()
    assert (caught.value.code, caught.value.retryable) == (Code.STREAM_STALLED, True)


async def test_case_P_24_the_requested_delay(pair: Pair) -> None:
    pair.server.replies = [page("busy", 529, {"retry-after": "2"})]
    _, error = await fails(pair.provider)
    assert (error.code, error.retryable, error.retry_after, error.status) == (Code.OVERLOADED, True, 2.0, 529)


async def test_case_P_08_an_error_inside_the_stream(pair: Pair) -> None:
    pair.server.replies = [Reply([pair.wire.delta("Part"), pair.wire.failure])]
    events, error = await fails(pair.provider)
    assert events == [TextPiece("Part")]
    assert (error.code, error.retryable) == (Code.SERVER_ERROR, True)


async def test_a_server_that_does_not_stream(pair: Pair) -> None:
    pair.server.replies = [page(pair.wire.body)]
    assert await stream(pair.provider) == [TextPiece("whole"), UsagePiece(Usage(4, 1)), StopPiece(StopReason.END_TURN)]


async def test_an_error_with_status_200(pair: Pair) -> None:
    pair.server.replies = [page({"error": {"message": "no such model", "type": "invalid_request_error"}})]
    _, error = await fails(pair.provider)
    assert error.code is Code.INVALID_REQUEST


async def test_a_web_page_is_not_an_answer(pair: Pair) -> None:
    pair.server.replies = [Reply([b"<html>Welcome"], headers={"content-type": "text/html"})]
    _, error = await fails(pair.provider)
    assert (error.code, error.retryable) == (Code.MALFORMED_RESPONSE, False)
    assert "baseUrl" in error.message


@pytest.mark.parametrize("name", ADAPTERS)
async def test_an_invalid_key_is_an_error_that_hides_the_key(name: str) -> None:
    async with WIRES[name].server(key="another") as server:
        settings = ProviderSettings(base_url=server.root)
        provider = WIRES[name].adapter("acme", "m", settings=settings, key=KEY, http=HttpClient())
        _, error = await fails(provider)
        assert error.code is Code.AUTH
        assert KEY not in repr(vars(provider))
        await provider.close()


@pytest.mark.parametrize("name", ADAPTERS)
async def test_headers_and_the_key(name: str) -> None:
    async with WIRES[name].server([WIRES[name].says("x"), WIRES[name].says("y")]) as server:
        settings = ProviderSettings(base_url=server.root, headers={"X-Title": "yarrow"})
        for key in ("", KEY):
            provider = WIRES[name].adapter("acme", "m", settings=settings, key=key, http=HttpClient())
            await stream(provider)
            await provider.close()
        without, with_key = server.received
        assert "authorization" not in without.headers
        assert with_key.headers["authorization"] == f"Bearer {KEY}"
        assert with_key.headers["x-title"] == "yarrow"
        assert with_key.headers["content-type"] == "application/json"


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_equivalent_spellings_of_the_base_url(name: str, suffix: str) -> None:
    async with WIRES[name].server([WIRES[name].says("x")]) as server:
        server.pages["/v1/models"] = page({"data": [{"id": "one", "n_ctx": 5}]})
        settings = ProviderSettings(base_url=server.root + suffix)
        provider = WIRES[name].adapter("acme", "m", settings=settings, key="", http=HttpClient())
        await stream(provider)
        assert isinstance(provider, ListsModels)
        assert await provider.list_models() == [ModelEntry("one", 5)]
        await provider.close()
        assert {received.path for received in server.received} == {WIRES[name].path, "/v1/models"}


@pytest.mark.parametrize("name", ADAPTERS)
async def test_configured_values_and_the_body(name: str) -> None:
    async with ChatServer([says("x"), says("y")]) as server:
        extra = {"top_k": 5, "stream_options": None}
        settings = ProviderSettings(base_url=server.root, max_tokens=77, temperature=0.5, extra_body=extra)
        provider = ADAPTERS[name]("acme", "m", settings=settings, key="", http=HttpClient())
        await stream(provider)
        await stream(provider, prompt(max_tokens=5, temperature=1.5))
        await provider.close()
        first, second = server.prompts
        assert (first["max_tokens"], first["temperature"], first["top_k"]) == (77, 0.5, 5)
        assert (second["max_tokens"], second["temperature"]) == (5, 1.5)
        assert "stream_options" not in first


@pytest.mark.parametrize("name", ADAPTERS)
async def test_rejected_parameters_are_dropped_once(name: str) -> None:
    async with ChatServer([says("x"), says("y")], refuses=["stream_options", "temperature"]) as server:
        settings = ProviderSettings(base_url=server.root, temperature=0.5)
        provider = ADAPTERS[name]("acme", "m", settings=settings, key="", http=HttpClient())
        await stream(provider)
        assert len(server.prompts) == 3
        await stream(provider)
        await provider.close()
        assert len(server.prompts) == 4
        assert server.prompts[-1].keys().isdisjoint({"stream_options", "temperature"})


async def test_a_rejection_that_names_no_optional_parameter_is_an_error(chat: Pair) -> None:
    chat.server.replies = [
        page({"error": {"message": "Unsupported parameter: 'seed'", "code": "unsupported_parameter"}}, 400)
    ]
    _, error = await fails(chat.provider)
    assert error.code is Code.UNSUPPORTED_PARAMETER
    assert len(chat.server.prompts) == 1


@pytest.mark.parametrize("name", ADAPTERS)
async def test_an_unreachable_server_is_reported_with_its_address(name: str) -> None:
    async with WIRES[name].server() as server:
        root = server.root
    settings = ProviderSettings(base_url=root)
    provider = WIRES[name].adapter("acme", "m", settings=settings, key="", http=HttpClient())
    _, error = await fails(provider)
    assert (error.code, error.retryable) == (Code.UNREACHABLE, True)
    assert root.removeprefix("http://") in error.message
    await provider.close()
    await provider.close()


async def test_the_body_is_compact_json(pair: Pair) -> None:
    pair.server.replies = [pair.wire.says("x")]
    await stream(pair.provider, prompt("é🌍"))
    [received] = pair.server.received
    assert "é🌍".encode() in received.body
    assert received.body == json.dumps(received.json, ensure_ascii=False, separators=(",", ":")).encode()
