"""The vendors' own clients understand what our doubles of their servers send, so they are no invention of ours."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2
import pytest
from google.genai import Client
from google.genai.errors import ServerError
from google.genai.types import FinishReason, FunctionCall, HttpOptions
from openai import AsyncOpenAI, AuthenticationError, RateLimitError
from openai.types.chat import ChatCompletionMessageParam

from doubles import gemini_server
from doubles.chat_server import DONE, ChatServer, Reply, chunk, finish, page, says, usage
from doubles.gemini_server import GeminiServer, call, refusal, text

KEY = "nobodys-key"
HI: ChatCompletionMessageParam = {"role": "user", "content": "hi"}


@asynccontextmanager
async def gemini(server: GeminiServer) -> AsyncGenerator[Client]:
    # The library leaves the answer open when it is a refusal: its connection is closed with this.
    async with httpx2.AsyncClient() as http:
        options = HttpOptions(base_url=server.root, api_version="v1beta", httpx_async_client=http)
        with Client(api_key=KEY, vertexai=False, http_options=options) as client:
            yield client


async def test_openai_reads_the_fake_servers_stream() -> None:
    begun = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "ls", "arguments": '{"path":'}}
    goes_on = {"index": 0, "function": {"arguments": '"x"}'}}
    second = {"index": 1, "id": "call_2", "type": "function", "function": {"name": "pwd", "arguments": "{}"}}
    deltas = [{"role": "assistant", "content": ""}, {"content": "Hel"}, {"content": "lo"}]
    deltas += [{"tool_calls": [each]} for each in (begun, goes_on, second)]
    reply = Reply([*map(chunk, deltas), finish("tool_calls"), usage(9, 2), DONE])
    async with ChatServer([reply], key=KEY) as server, AsyncOpenAI(base_url=f"{server.root}/v1", api_key=KEY) as client:
        stream = await client.chat.completions.create(
            model="m", messages=[HI], stream=True, stream_options={"include_usage": True}
        )
        *told, last = [one async for one in stream]
    choices = [choice for one in told for choice in one.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == "Hello"
    parts = [part for choice in choices for part in choice.delta.tool_calls or ()]
    assert [(part.index, part.id) for part in parts] == [(0, "call_1"), (0, None), (1, "call_2")]
    arguments = [part.function.arguments or "" for part in parts if part.function and part.index == 0]
    assert "".join(arguments) == '{"path":"x"}'
    assert choices[-1].finish_reason == "tool_calls"
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (9, 2)


async def test_openai_assembles_the_whole_answer() -> None:
    async with ChatServer([says("Hello")]) as server:
        client = AsyncOpenAI(base_url=f"{server.root}/v1", api_key=KEY)
        async with client, client.chat.completions.stream(model="m", messages=[HI]) as stream:
            [choice] = (await stream.get_final_completion()).choices
    assert (choice.message.content, choice.finish_reason) == ("Hello", "stop")


async def test_openai_reads_the_fake_servers_models_and_errors() -> None:
    error = {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}
    busy = page({"error": error}, 429, {"retry-after": "3"})
    async with ChatServer([busy], key=KEY) as server:
        model = {"id": "m", "object": "model", "created": 1, "owned_by": "o"}
        server.pages["/v1/models"] = page({"object": "list", "data": [model]})
        async with AsyncOpenAI(base_url=f"{server.root}/v1", api_key=KEY, max_retries=0) as client:
            assert [listed.id async for listed in client.models.list()] == ["m"]
            with pytest.raises(RateLimitError) as refused:
                await client.chat.completions.create(model="m", messages=[HI], stream=True)
            assert refused.value.code == "rate_limit_exceeded"
            assert refused.value.response.headers["retry-after"] == "3"
            with pytest.raises(AuthenticationError):
                await client.with_options(api_key="another").models.list()


async def test_google_reads_the_fake_servers_stream() -> None:
    counts = {"promptTokenCount": 9, "candidatesTokenCount": 2, "thoughtsTokenCount": 3, "totalTokenCount": 14}
    parts = [text("hm", thought=True), text("Hel"), text("lo")]
    last = gemini_server.chunk(call("ls", {"path": "x"}, "a", thoughtSignature="c2ln"), finish="STOP", usage=counts)
    reply = Reply([*map(gemini_server.chunk, parts), last])
    async with GeminiServer([reply], key=KEY) as server, gemini(server) as client:
        stream = await client.aio.models.generate_content_stream(model="m", contents="hi")
        told = [one async for one in stream]
    heard = [part for one in told for part in one.parts or ()]
    assert [(part.text, part.thought) for part in heard[:3]] == [("hm", True), ("Hel", None), ("lo", None)]
    assert heard[3].function_call == FunctionCall(id="a", name="ls", args={"path": "x"})
    assert heard[3].thought_signature == b"sig"
    assert told[-1].candidates is not None
    assert told[-1].candidates[0].finish_reason is FinishReason.STOP
    spent = told[-1].usage_metadata
    assert spent is not None
    assert (spent.prompt_token_count, spent.candidates_token_count, spent.thoughts_token_count) == (9, 2, 3)


async def test_google_reads_the_fake_servers_models_and_errors() -> None:
    async with GeminiServer([refusal("busy", 503, "UNAVAILABLE")], key=KEY) as server, gemini(server) as client:
        model = {"name": "models/m", "inputTokenLimit": 5, "supportedGenerationMethods": ["generateContent"]}
        server.pages["/v1beta/models"] = page({"models": [model]})
        listed = [model async for model in await client.aio.models.list()]
        assert [(one.name, one.input_token_limit) for one in listed] == [("models/m", 5)]
        with pytest.raises(ServerError) as refused:
            async for _ in await client.aio.models.generate_content_stream(model="m", contents="hi"):
                pass
        assert (refused.value.code, refused.value.status) == (503, "UNAVAILABLE")
