"""The responses adapter over a strict loopback server, beyond the contract of all adapters."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from doubles.chat_server import Reply, page
from doubles.completions import KEY, fails, prompt, stream
from doubles.conversation import assistant, result, user
from doubles.responses_server import ResponsesServer, call, end, reasoning, refusal, says, start, text, usage
from doubles.spoken import record
from yarrow.config.settings import ProviderSettings, Settings
from yarrow.errors import Code, ProviderError
from yarrow.message import Image, Message, Opaque, StopReason, ThinkingLevel, ToolCall, ToolSpec, Usage
from yarrow.provider.base import NoticePiece, StopPiece, ThinkingPiece, UsagePiece
from yarrow.provider.factory import ProviderContext, create_provider
from yarrow.provider.history_repair import HIDDEN_IMAGE
from yarrow.provider.http.client import HttpClient
from yarrow.provider.openai_compatible_server import OpenAiServer
from yarrow.provider.responses.adapter import ResponsesProvider

READ = ToolSpec("read", "Reads.", {"type": "object"})
PNG = Image("image/png", "iVBORw0KGgo=")


def provider_for(server: ResponsesServer, model: str = "m", **settings: Any) -> ResponsesProvider:
    values: dict[str, Any] = {"base_url": server.root, **settings}
    return ResponsesProvider("here", model, settings=ProviderSettings(**values), key=KEY, http=HttpClient())


@pytest.fixture
async def server() -> AsyncGenerator[ResponsesServer]:
    async with ResponsesServer(key=KEY) as running:
        yield running


@pytest.fixture
async def provider(server: ResponsesServer) -> AsyncGenerator[ResponsesProvider]:
    made = provider_for(server)
    yield made
    await made.close()


def thinks(number: int = 1, call_id: str = "a") -> Message:
    item = {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": f"E{number}"}
    return assistant(Opaque(json.dumps(item)), ToolCall(call_id, "read", "{}", opaque=f'{{"id":"fc_{call_id}"}}'))


LOOP = (user("go"), thinks(), result("a", "r"))


def kinds(body: dict[str, Any]) -> list[str]:
    return [item.get("type", item.get("role")) for item in body["input"]]


async def test_a_whole_turn_with_reasoning_and_parallel_calls(
    provider: ResponsesProvider, server: ResponsesServer
) -> None:
    first = [start(), reasoning(0, "hm"), call(1, "a", "read", '{"p":', "1}"), call(2, "b", "read")]
    server.replies = [Reply([*first, end(usage=usage(9, 4, cached=5, reasoning=3))]), says("done")]
    asked = prompt("hi", tools=(READ,), thinking=ThinkingLevel.HIGH, session_id="s")
    events = await stream(provider, asked)
    assert events[0] == ThinkingPiece("hm")
    assert events[-2:] == [UsagePiece(Usage(4, 4, cache_read=5, thinking=3)), StopPiece(StopReason.TOOL_USE)]
    await stream(provider, prompt(user("hi"), record(events), result("a", "1"), result("b", "2"), tools=(READ,)))
    body = server.prompts[-1]
    assert kinds(body) == ["user", "reasoning", *["function_call"] * 2, *["function_call_output"] * 2]
    assert [item.get("id") for item in body["input"][1:4]] == ["rs_1", "fc_a", "fc_b"]
    assert body["input"][1]["summary"] == [{"type": "summary_text", "text": "hm"}]
    assert server.prompts[0]["prompt_cache_key"] == "s"


# -- what a server refuses -----------------------------------------------------------------------------------------

NOT_FOUND = "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."
WORDINGS = [
    refusal("Item 'rs_1' of type 'reasoning' was provided without its required following item."),
    refusal("Item 'fc_a' of type 'function_call' was provided without its required 'reasoning' item: 'rs_1'."),
    refusal(NOT_FOUND, 404),
    refusal(NOT_FOUND, 500, type="server_error"),
    refusal("Missing required parameter: 'input[1].summary'.", code="missing_required_parameter"),
    refusal("item['content'] is not an array"),
]


@pytest.mark.parametrize("refused", WORDINGS, ids=range(len(WORDINGS)))
async def test_refused_reasoning_is_left_out_at_once_and_from_then_on(
    provider: ResponsesProvider, server: ResponsesServer, refused: Reply
) -> None:
    server.replies = [refused, says("one"), says("two")]
    notice, *events = await stream(provider, prompt(*LOOP))
    assert isinstance(notice, NoticePiece)
    assert notice.code == "REASONING_DROPPED"
    assert events[-1] == StopPiece(StopReason.END_TURN)
    again = await stream(provider, prompt(*LOOP))
    assert not any(isinstance(one, NoticePiece) for one in again)
    assert [kinds(body).count("reasoning") for body in server.prompts] == [1, 0, 0]
    assert [body["input"][-2].get("id") for body in server.prompts] == ["fc_a", None, None]
    server.replies = [says("three")]
    await stream(provider, prompt(*LOOP, model="n"))
    assert server.prompts[-1]["include"] == ["reasoning.encrypted_content"]


async def test_a_second_refusal_ends_the_request(provider: ResponsesProvider, server: ResponsesServer) -> None:
    server.replies = [WORDINGS[0], WORDINGS[0]]
    events, error = await fails(provider, prompt(*LOOP))
    assert [type(event) for event in events] == [NoticePiece]
    assert error.code is Code.INVALID_REQUEST
    assert len(server.prompts) == 2


async def test_reasoning_that_cannot_be_decrypted_is_left_out_but_later_reasoning_is_sent(
    provider: ResponsesProvider, server: ResponsesServer
) -> None:
    words = (
        "The encrypted content E1 could not be verified. Reason: Encrypted content could not be decrypted or parsed."
    )
    server.replies = [refusal(words, code="invalid_encrypted_content"), says("one"), says("two")]
    await stream(provider, prompt(*LOOP))
    await stream(provider, prompt(*LOOP, thinks(2, "b"), result("b", "r")))
    assert [kinds(body).count("reasoning") for body in server.prompts] == [1, 0, 1]
    assert server.prompts[-1]["input"][3]["encrypted_content"] == "E2"


async def test_a_refusal_about_reasoning_that_was_not_sent_is_an_error(
    provider: ResponsesProvider, server: ResponsesServer
) -> None:
    server.replies = [WORDINGS[0]]
    _, error = await fails(provider)
    assert error.code is Code.INVALID_REQUEST


@pytest.mark.parametrize(
    "name", ["temperature", "include", "prompt_cache_key", "max_output_tokens", "reasoning.summary", "reasoning"]
)
async def test_refused_fields_are_dropped_once(name: str) -> None:
    async with ResponsesServer([says("x"), says("y")], refuses=[name]) as server:
        provider = provider_for(server, temperature=0.5, max_tokens=50)
        asked = prompt(thinking=ThinkingLevel.HIGH, session_id="s")
        for _ in range(2):
            await stream(provider, asked)
        await provider.close()
        assert len(server.prompts) == 3
        outer, _, inner = name.partition(".")
        assert (inner or outer) not in (server.prompts[-1]["reasoning"] if inner else server.prompts[-1])


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("Encrypted content is not supported with this model.", "include"),
        ("Your organization must be verified to generate reasoning summaries.", "summary"),
        ("Unsupported parameter: 'reasoning.effort' is not supported with this model.", "effort"),
    ],
)
async def test_refusals_in_the_vendors_words(
    provider: ResponsesProvider, server: ResponsesServer, words: str, name: str
) -> None:
    server.replies = [refusal(words, code="unsupported_value"), says("x")]
    await stream(provider, prompt(thinking=ThinkingLevel.HIGH))
    body = server.prompts[-1]
    assert name not in body | body["reasoning"]


async def test_an_effort_that_the_model_lacks_becomes_the_nearest(
    provider: ResponsesProvider, server: ResponsesServer
) -> None:
    values = "Supported values are: 'none', 'low', 'medium', and 'high'."
    words = f"Unsupported value: 'max' is not supported with the 'm' model. {values}"
    server.replies = [refusal(words, code="unsupported_value", param="reasoning.effort"), says("x"), says("y")]
    await stream(provider, prompt(thinking=ThinkingLevel.MAX))
    await stream(provider, prompt(thinking=ThinkingLevel.MAX))
    assert [body["reasoning"]["effort"] for body in server.prompts] == ["max", "high", "high"]


async def test_images_that_are_refused_are_hidden(provider: ResponsesProvider, server: ResponsesServer) -> None:
    server.replies = [refusal("This model does not support image inputs."), says("x")]
    await stream(provider, prompt(user("see", PNG), assistant("no"), user("and now?")))
    assert server.prompts[-1]["input"][0]["content"] == f"see\n\n{HIDDEN_IMAGE}"


# -- where ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "called"),
    [
        ("", "https://api.openai.com/v1/responses"),
        ("http://h", "http://h/v1/responses"),
        ("http://h/v1/responses/", "http://h/v1/responses"),
        ("http://h/responses", "http://h/responses"),
        ("http://h/responses?api-version=preview", "http://h/responses?api-version=preview"),
        ("https://x.openai.azure.com/openai/v1", "https://x.openai.azure.com/openai/v1/responses"),
        ("http://h/proxy", "http://h/proxy/responses"),
    ],
)
def test_addresses(url: str, called: str) -> None:
    there = OpenAiServer("here", ProviderSettings(base_url=url), key="", http=HttpClient(), path="/responses")
    assert there.address.call_url == called


async def test_the_other_form_of_an_address_is_tried_where_nothing_is(server: ResponsesServer) -> None:
    server.replies = [says("x")]
    provider = provider_for(server, base_url=f"{server.root}/proxy")
    await stream(provider)
    await provider.close()
    assert [one.path for one in server.received] == ["/proxy/responses", "/proxy/v1/responses"]


async def build(environment: dict[str, str], name: str = "openai-responses", **settings: Any) -> ResponsesProvider:
    configured = {name: ProviderSettings(**settings)} if settings else {}
    created = await create_provider(name, "m", ProviderContext(Settings(providers=configured), environment))
    assert isinstance(created.provider, ResponsesProvider)
    return created.provider


async def test_the_built_in_id_has_the_vendors_address_and_key(server: ResponsesServer) -> None:
    await (await build({"OPENAI_API_KEY": "sk-o"})).close()
    with pytest.raises(ProviderError, match="OPENAI_API_KEY") as caught:
        await build({})
    assert caught.value.code is Code.PROVIDER_SETUP
    with pytest.raises(ProviderError):
        await build({"OPENAI_API_KEY": "sk-o"}, base_url="http://api.openai.com/v1")
    server.replies = [says("x")]
    redirected = await build({"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.root})
    await stream(redirected)
    await redirected.close()
    elsewhere = await build({"OPENAI_API_KEY": KEY}, "work", type="responses", base_url=server.root)
    _, error = await fails(elsewhere)
    await elsewhere.close()
    assert error.code is Code.AUTH
    assert "authorization" not in server.received[-1].headers


async def test_a_model_is_required() -> None:
    async with ResponsesServer() as server:
        with pytest.raises(ProviderError) as caught:
            await provider_for(server, "").info()
        assert caught.value.code is Code.PROVIDER_SETUP
        assert (await provider_for(server, "gpt-5.1").info()).context_window == 400_000


async def test_an_answer_after_status_200_that_failed(provider: ResponsesProvider, server: ResponsesServer) -> None:
    failed = end("failed", error={"code": "server_error", "message": "Sorry."})
    server.replies = [Reply([start(), text(0, "Part"), failed]), page({"error": {"message": "no such model"}})]
    _, error = await fails(provider)
    assert (error.code, error.retryable) == (Code.SERVER_ERROR, True)
    _, error = await fails(provider)
    assert "no such model" in error.message
