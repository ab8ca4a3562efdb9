"""Requirements of servers known by host or learned from one rejection: id formats, required fields."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doubles.chat_server import ChatServer, page, says
from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.message import Message, Role, Text, ToolCall
from yarrow.provider.base import CompletionRequest
from yarrow.provider.chat_completions.server_limits import (
    CHAT_PATTERNS,
    apply_chat_limits,
    find_host_limits,
    find_requirement,
    rewrite_ids,
)
from yarrow.provider.http.client import HttpClient
from yarrow.provider.learned_limits import NO_LIMITS, LearnedLimits, SentRequest
from yarrow.provider.llamacpp.adapter import LlamaCppProvider
from yarrow.provider.openai.adapter import OpenAiProvider

NINE = "Tool call id was call_00 but must be a-z, A-Z, 0-9, with a length of 9."
TEMPLATE = "Value error: Tool call IDs should be alphanumeric strings with length 9!"
SHORT = "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got 90."
FIELD = "The `reasoning_content` in the thinking mode must be passed back to the API."
LONG = "x" * 90
REQUEST = CompletionRequest(model="m", messages=())


def history(*ids: str) -> tuple[Message, ...]:
    """A question, and answers that call and are answered; all are the provider's own."""
    messages = [Message(id="u", role=Role.USER, content=(Text("go"),), timestamp="")]
    for call_id in ids:
        call = (ToolCall(call_id, "echo", "{}"),)
        messages += [
            Message(id="a", role=Role.ASSISTANT, content=call, timestamp="", provider="acme", model="m"),
            Message(id="r", role=Role.TOOL, content=(Text("ok"),), timestamp="", tool_call_id=call_id),
        ]
    return tuple(messages)


def provider_of(kind: type[OpenAiProvider] | type[LlamaCppProvider], server: ChatServer) -> Any:
    return kind("acme", "m", settings=ProviderSettings(base_url=server.root), key="", http=HttpClient())


def ids_of(body: dict[str, Any]) -> list[tuple[str, str]]:
    """The id of each call and of its result; results follow their calls here."""
    calls = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
    return list(zip(calls, (one["tool_call_id"] for one in body["messages"] if one["role"] == "tool"), strict=True))


@pytest.mark.parametrize("kind", [OpenAiProvider, LlamaCppProvider])
@pytest.mark.parametrize(
    ("told", "status", "form"),
    [(NINE, 400, r"[a-zA-Z0-9]{9}"), (TEMPLATE, 500, r"[a-zA-Z0-9]{9}"), (SHORT, 400, r".{1,40}")],
)
async def test_an_id_format_is_learned_from_one_rejection(kind: Any, told: str, status: int, form: str) -> None:
    async with ChatServer() as server:
        refusal = page({"error": {"message": told, "type": "invalid_request_error", "code": status}}, status)
        server.replies = [refusal, says("a"), says("b")]
        provider = provider_of(kind, server)
        for _ in range(2):
            async for _ in provider.stream(
                CompletionRequest(model="m", messages=history("call_00", LONG, "abc123XYZ"))
            ):
                pass
        await provider.close()
        assert len(server.prompts) == 3
        for body in server.prompts[1:]:
            assert all(call == result and re.fullmatch(form, call) for call, result in ids_of(body))
            assert ids_of(body)[2][0] == "abc123XYZ"


async def test_a_required_field_is_sent_afterwards() -> None:
    async with ChatServer() as server:
        refusal = page({"error": {"message": FIELD, "type": "invalid_request_error"}}, 400)
        server.replies = [refusal, says("a"), refusal]
        provider = provider_of(OpenAiProvider, server)
        async for _ in provider.stream(CompletionRequest(model="m", messages=history("one"))):
            pass
        with pytest.raises(ProviderError, match="must be passed back"):  # known by now, so nothing is left to try
            async for _ in provider.stream(CompletionRequest(model="m", messages=history("one"))):
                pass
        await provider.close()
        assert "reasoning_content" not in server.prompts[0]["messages"][1]
        assert [body["messages"][1]["reasoning_content"] for body in server.prompts[1:]] == ["", ""]


@pytest.mark.parametrize(
    ("host", "form"),
    [("api.mistral.ai", r"[a-zA-Z0-9]{9}"), ("api.openai.com", r".{1,40}"), ("elsewhere", rf"call_00|{LONG}")],
)
def test_known_hosts_get_their_id_format_at_once(host: str, form: str) -> None:
    calls = [{"tool_calls": [{"id": "call_00"}, {"id": LONG}]}]
    made = apply_chat_limits({"messages": calls}, find_host_limits(host))
    assert all(re.fullmatch(form, call["id"]) for call in made["messages"][0]["tool_calls"])


@pytest.mark.parametrize("status", [401, 429, 503])
def test_nothing_is_learned_from_other_failures(status: int) -> None:
    error = ProviderError(Code.INVALID_REQUEST, NINE, status=status)
    assert not LearnedLimits(CHAT_PATTERNS).learn(error, SentRequest(REQUEST, {"messages": []}))


@given(
    st.lists(st.text(st.sampled_from("aB9_-\u2028é "), min_size=1, max_size=60) | st.just("abc123XYZ"), unique=True),
    st.integers(0, 20),
)
def test_ids_are_unique_paired_and_stable_under_growth(ids: list[str], early: int) -> None:
    messages = [
        message
        for call_id in ids
        for message in ({"role": "a", "tool_calls": [{"id": call_id}]}, {"role": "tool", "tool_call_id": call_id})
    ]
    made = ids_of(rewrite_ids({"messages": messages}, "nine"))
    assert all(call == result and re.fullmatch(r"[a-zA-Z0-9]{9}", call) for call, result in made)
    assert len(set(made)) == len(ids)
    assert ids_of(rewrite_ids({"messages": messages[: 2 * early]}, "nine")) == made[:early]


@pytest.mark.parametrize(
    "told",
    [
        FIELD,
        "Missing `reasoning_content` field in the assistant message at message index 2.",
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
        "messages.2.reasoning_content: Field required",
        "missing required parameter: 'reasoning_content'",
        "reasoning_content must be provided for assistant messages with tool calls",
    ],
)
def test_case_RA_07_a_required_thinking_field(told: str) -> None:
    limits = LearnedLimits(CHAT_PATTERNS)
    error = ProviderError(Code.INVALID_REQUEST, told)
    error.status = 400
    body: dict[str, Any] = {"messages": [{"role": "assistant", "tool_calls": []}, {"role": "user"}]}
    assert limits.learn(error, SentRequest(REQUEST, body))
    assert not limits.learn(error, SentRequest(REQUEST, body, limits.get("m")))
    body = apply_chat_limits(body, limits.get("m"))
    assert body["messages"] == [{"reasoning_content": "", "role": "assistant", "tool_calls": []}, {"role": "user"}]


@pytest.mark.parametrize(
    "told",
    [
        "messages.2.reasoning_content: Extra inputs are not permitted",
        "reasoning_content is not supported; a required field is missing: name",
        "unknown field reasoning_content",
        "the field `content` is missing",
    ],
)
def test_a_rejected_thinking_field_is_not_required(told: str) -> None:
    error = ProviderError(Code.INVALID_REQUEST, told)
    error.status = 400
    assert find_requirement(error, SentRequest(REQUEST)) == NO_LIMITS


TOOLS = (
    "The toolConfig field must be defined when using toolUse and toolResult content blocks.",
    "Requests which have `tool_use` or `tool_result` blocks in messages must define tools",
    "litellm.UnsupportedParamsError: Bedrock doesn't support tool calling without `tools=` param specified.",
    "Anthropic expects the `tools=` param to be passed in.",
)


@pytest.mark.parametrize("told", TOOLS)
async def test_case_RA_16_a_history_with_calls_declares_the_tools_that_it_calls(told: str) -> None:
    async with ChatServer() as server:
        server.replies = [page({"error": {"message": told}}, 400), says("a"), says("b")]
        provider = provider_of(OpenAiProvider, server)
        for ids in (("one",), ()):
            async for _ in provider.stream(CompletionRequest(model="m", messages=history(*ids))):
                pass
        await provider.close()
        refused, again, without_calls = server.prompts
    assert "tools" not in refused
    assert [tool["function"]["name"] for tool in again["tools"]] == ["echo"]
    assert again["tool_choice"] == "none"
    assert again["messages"] == refused["messages"]
    assert "tools" not in without_calls


def marks(body: dict[str, Any]) -> list[str]:
    parts = [
        (one["role"], part) for one in body["messages"] if isinstance(one["content"], list) for part in one["content"]
    ]
    return [role for role, part in parts if "cache_control" in part]


@pytest.mark.parametrize(
    ("model", "is_marked"),
    [
        *((name, True) for name in ("anthropic/claude-sonnet-4.6", "claude-opus-5", "bedrock/us.anthropic.claude-3-5")),
        *((name, False) for name in ("gpt-4o", "m", "claudette", "my-claud", "not/claudius-1")),
    ],
)
async def test_case_RA_15_cache_markers_by_model_name(model: str, is_marked: bool) -> None:
    async with ChatServer() as server:
        refusal = page(
            {"error": {"message": "messages.0.content.0.cache_control: Extra inputs are not permitted"}}, 400
        )
        server.replies = [says("a"), refusal, says("b"), says("c")]
        provider = provider_of(OpenAiProvider, server)
        request = CompletionRequest(model=model, system="Be brief.", messages=history("one"))
        for _ in range(3 if is_marked else 1):
            async for _ in provider.stream(request):
                pass
        await provider.close()
        found = [marks(body) for body in server.prompts]
    assert found == ([["system", "tool"]] * 2 + [[], []] if is_marked else [[]])
