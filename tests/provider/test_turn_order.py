"""A user's message after a result of a tool, for servers and templates that refuse it."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from provider.test_law_one import histories

from doubles import chat_server, messages_server, ollama_server, responses_server
from doubles.chat_server import ChatServer, page
from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.message import Message, Role, Text, ToolCall
from yarrow.provider import chat_request_rules
from yarrow.provider.base import CompletionRequest
from yarrow.provider.chat_completions.request import encode_chat_request
from yarrow.provider.chat_completions.server_limits import find_host_limits
from yarrow.provider.gemini.request import encode_contents
from yarrow.provider.history_repair import Target
from yarrow.provider.http.client import HttpClient
from yarrow.provider.learned_file import LearnedFile, ServerIdentity
from yarrow.provider.learned_limits import NO_LIMITS, LearnedLimits, SentRequest
from yarrow.provider.llamacpp.adapter import LlamaCppProvider
from yarrow.provider.messages.adapter import MessagesProvider
from yarrow.provider.messages.capabilities import MessagesCapabilities
from yarrow.provider.messages.request import encode_messages_request
from yarrow.provider.ollama.adapter import OllamaProvider
from yarrow.provider.ollama.capabilities import OllamaCapabilities
from yarrow.provider.ollama.request import encode_ollama_request
from yarrow.provider.openai.adapter import OpenAiProvider
from yarrow.provider.responses.adapter import ResponsesProvider
from yarrow.provider.responses.request import ReplayRules, encode_responses_request
from yarrow.provider.turn_order import ORDER_PATTERN, TURN_ORDER, has_user_after_tool, order_turns

Body = dict[str, Any]
REFUSALS = (
    "Unexpected role 'user' after role 'tool'",
    r"litellm.BadRequestError: MistralException - {\"message\":\"Unexpected role \\'user\\' after role \\'tool\\'\"}",
    "After the optional system message, conversation roles must alternate user/assistant/user/assistant/...",
    "Jinja Exception: Conversation roles must alternate user/assistant at row 12",
    "a message of role user cannot directly follow a message of role tool",
    "messages with role 'tool' must be followed by a message with role 'assistant'",
)
BODY: Body = {"messages": [{"role": "tool", "content": "a"}, {"role": "user", "content": "b"}]}


def encode(kind: str, messages: tuple[Message, ...]) -> Body:
    target, request = Target("mine", "m"), CompletionRequest("m", messages)
    match kind:
        case "chat":
            return encode_chat_request(request, target, fields={}, extra={})
        case "messages":
            return encode_messages_request(
                request, target, settings=ProviderSettings(), capabilities=MessagesCapabilities()
            )
        case "responses":
            rules = ReplayRules(is_vendor=True)
            return encode_responses_request(request, target, settings=ProviderSettings(), rules=rules)
        case "gemini":
            return {"contents": encode_contents(messages, target)}
        case _:
            return encode_ollama_request(
                request, target, settings=ProviderSettings(), capabilities=OllamaCapabilities(images=True)
            )


KINDS = ("chat", "messages", "gemini", "ollama", "responses")


@given(st.sampled_from(KINDS), histories("m"), st.sampled_from(["bridged", "joined"]))
def test_case_RA_05_no_user_follows_a_result_in_any_format(kind: str, messages: tuple[Message, ...], form: str) -> None:
    body = encode(kind, messages)
    before = str(body)
    ordered = order_turns(body, form)
    assert not has_user_after_tool(ordered)
    assert order_turns(ordered, form) == ordered
    assert str(body) == before
    if not has_user_after_tool(body):
        assert ordered == body
    if kind == "chat":
        assert chat_request_rules.violations(ordered | {"stream": True}) == []
    if kind in ("chat", "ollama"):
        roles = [message["role"] for message in ordered["messages"]]
        assert all(a != b or a == "tool" for a, b in pairwise(roles))


@given(st.sampled_from(KINDS), histories("m"), st.sampled_from(["bridged", "joined"]), st.data())
def test_a_longer_history_begins_with_the_shorter_one(
    kind: str, messages: tuple[Message, ...], form: str, data: st.DataObject
) -> None:
    body = encode(kind, messages)
    name = {"gemini": "contents", "responses": "input"}.get(kind, "messages")
    count = data.draw(st.integers(0, len(body[name])))
    shorter = order_turns({name: body[name][:count]}, form)[name]
    whole = order_turns(body, form)[name]
    assert whole[: max(len(shorter) - 1, 0)] == shorter[: max(len(shorter) - 1, 0)]


@pytest.mark.parametrize("told", REFUSALS)
@pytest.mark.parametrize(
    ("status", "code"), [(400, Code.INVALID_REQUEST), (500, Code.SERVER_ERROR), (0, Code.SERVER_ERROR)]
)
def test_case_RA_05_the_order_is_learned_from_the_refusal(told: str, status: int, code: Code) -> None:
    limits = LearnedLimits([ORDER_PATTERN])
    error = ProviderError(code, told, status=status)
    request = CompletionRequest("m", ())
    forms: list[str] = []
    while limits.learn(error, SentRequest(request, BODY, limits.get("m"))):
        forms.append(limits.get("m").required[TURN_ORDER])
    assert forms == ["bridged", "joined"]
    assert limits.get("other") == NO_LIMITS


@pytest.mark.parametrize("told", ["the user may follow the link of the tool", "tool role is unknown", "bad request"])
def test_another_refusal_says_nothing_about_the_order(told: str) -> None:
    limits = LearnedLimits([ORDER_PATTERN])
    error = ProviderError(Code.INVALID_REQUEST, told, status=400)
    assert not limits.learn(error, SentRequest(CompletionRequest("m", ()), BODY))


def test_a_legal_order_is_not_changed_by_a_refusal() -> None:
    limits = LearnedLimits([ORDER_PATTERN])
    error = ProviderError(Code.INVALID_REQUEST, REFUSALS[2], status=400)
    legal: Body = {"messages": [{"role": "user", "content": "a"}]}
    assert not limits.learn(error, SentRequest(CompletionRequest("m", ()), legal))


def test_mistrals_own_host_needs_no_refusal() -> None:
    assert find_host_limits("api.mistral.ai").required[TURN_ORDER] == "bridged"


def test_the_forms_of_each_format() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    text = {"type": "text", "text": "b"}
    chat: Body = {"messages": [{"role": "tool", "content": "a"}, {"role": "user", "content": [text, image]}]}
    assert [one["role"] for one in order_turns(chat, "bridged")["messages"]] == ["tool", "assistant", "user"]
    [joined] = order_turns(chat, "joined")["messages"]
    assert joined["content"].startswith("a\n\nb\n\n(image omitted")
    result = {"type": "tool_result", "tool_use_id": "x", "content": "a"}
    native: Body = {"messages": [{"role": "user", "content": [result, text]}]}
    first, bridge, last = order_turns(native, "bridged")["messages"]
    assert (first["content"], bridge["role"], last["content"]) == ([result], "assistant", [text])
    [joined] = order_turns(native, "joined")["messages"]
    assert joined["content"] == [result | {"content": [{"type": "text", "text": "a"}, text]}]
    response = {"functionResponse": {"name": "read", "response": {"output": "a"}}}
    gemini: Body = {"contents": [{"role": "user", "parts": [response, {"text": "b"}]}]}
    assert [one["role"] for one in order_turns(gemini, "bridged")["contents"]] == ["user", "model", "user"]
    [joined] = order_turns(gemini, "joined")["contents"]
    assert joined["parts"][0]["functionResponse"]["response"] == {"output": "a\n\nb"}


def history() -> tuple[Message, ...]:
    """An answer with a call, its result, and a prompt."""
    call = (ToolCall("a", "read", "{}"),)
    return (
        Message(id="u", role=Role.USER, content=(Text("go"),), timestamp=""),
        Message(id="a", role=Role.ASSISTANT, content=call, timestamp="", provider="mine", model="m"),
        Message(id="r", role=Role.TOOL, content=(Text("ok"),), timestamp="", tool_call_id="a", tool_name="read"),
        Message(id="v", role=Role.USER, content=(Text("go on"),), timestamp=""),
    )


@pytest.mark.parametrize(
    "kind", [OpenAiProvider, LlamaCppProvider, OllamaProvider, MessagesProvider, ResponsesProvider]
)
async def test_case_RA_05_one_retry_and_never_again(kind: Any, tmp_path: Path) -> None:
    refusal = page({"error": {"message": REFUSALS[0], "code": "3230"}}, 400)
    answers = {
        OllamaProvider: (ollama_server.OllamaServer, ollama_server.says),
        MessagesProvider: (messages_server.MessagesServer, messages_server.says),
        ResponsesProvider: (responses_server.ResponsesServer, responses_server.says),
    }
    server_of, says = answers.get(kind, (ChatServer, chat_server.says))
    async with server_of([refusal, says("a"), says("b"), says("c")]) as server:
        for prompts in (2, 1):
            settings = ProviderSettings(base_url=server.root)
            provider = kind("mine", "m", settings=settings, key="", http=HttpClient())
            provider.limits.memory = LearnedFile(tmp_path / "learned.json", ServerIdentity("mine", server.root))
            for _ in range(prompts):
                async for _ in provider.stream(CompletionRequest("m", history())):
                    pass
            await provider.close()
        orders = [has_user_after_tool(body) for body in server.prompts]
    assert orders == [True, False, False, False]


async def test_a_refusal_of_both_forms_is_an_error(tmp_path: Path) -> None:
    refusal = page({"error": {"message": REFUSALS[0]}}, 400)
    async with ChatServer([refusal] * 3) as server:
        settings = ProviderSettings(base_url=server.root)
        provider = OpenAiProvider("mine", "m", settings=settings, key="", http=HttpClient())
        with pytest.raises(ProviderError, match="after role 'tool'"):
            async for _ in provider.stream(CompletionRequest("m", history())):
                pass
        await provider.close()
        assert len(server.prompts) == 3


def test_the_forms_of_the_responses_format() -> None:
    image = {"type": "input_image", "image_url": "data:"}
    output = {"type": "function_call_output", "call_id": "x", "output": "a"}
    body: Body = {"input": [output, {"role": "user", "content": "b"}]}
    assert [one.get("role") for one in order_turns(body, "bridged")["input"]] == [None, "assistant", "user"]
    assert order_turns(body, "joined")["input"] == [output | {"output": "a\n\nb"}]
    [joined] = order_turns({"input": [output, {"role": "user", "content": [image]}]}, "joined")["input"]
    assert joined["output"] == [{"type": "input_text", "text": "a"}, image]
