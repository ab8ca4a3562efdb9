"""Law: a request that was refused is never sent again unchanged, whatever the server says and each adapter knows."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from doubles.completions import fails
from doubles.refusals import KINDS, RefusingServer, create
from yarrow.message import Image, Message, Role, Text, Thinking, ThinkingLevel, ToolCall, ToolSpec
from yarrow.provider.base import CompletionRequest

WORDS = [
    *(
        "unsupported parameter",
        "unknown field",
        "is not supported",
        "does not support",
        "extra inputs are not permitted",
    ),
    *("invalid", "is required", "must be", "missing", "cannot be modified", "expected", "not allowed", "too large"),
    *("temperature", "max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens", "reasoning_effort"),
    *("reasoning_content", "reasoning", "thinking", "thinking.type.enabled", "adaptive", "effort", "think", "budget"),
    *("tools", "tool_choice", "tool choice", "functions", "parallel_tool_calls", "cache_control", "stream_options"),
    *("image", "images", "image_url", "multimodal", "vision", "signature", "thought_signature", "system", "developer"),
    *("role", "roles must alternate", "after role 'tool'", "user", "assistant", "tool", "conversation roles", "last"),
    *("stream", "include_usage", "store", "include", "encrypted_content", "item", "output_config", "keep_alive"),
    *("truncate", "shift", "num_ctx", "options", "chat template", "jinja", "prefill", "required following item"),
    *("exceed context limit: 90 + 9 > 5000", "maximum context length is 6000 tokens", "at most 4096 tokens", "4096"),
    *("name", "arguments", "schema", "parameters", "strict", "additionalProperties", "$ref", "thinkingConfig"),
]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)
REFUSALS = st.tuples(
    st.sampled_from([400, 400, 400, 404, 413, 415, 422, 500]),
    TEXTS,
    st.sampled_from(["", "unsupported_parameter", "invalid_request_error", "unsupported_value", "INVALID_ARGUMENT"]),
)
READ = ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string", "enum": ["a"]}}})


def said(role: Role, *blocks: Any, **more: Any) -> Message:
    return Message(id="", role=role, content=blocks, timestamp="", provider="acme", model="m", **more)


HISTORY = (
    said(Role.USER, Text("look"), Image("image/png", "AAAA")),
    said(
        Role.ASSISTANT,
        Thinking("hm", '{"type":"thinking","signature":"c2ln"}'),
        Thinking("hm", '{"field":"reasoning_content"}'),
        ToolCall("a", "read", '{"path":"a"}'),
    ),
    said(Role.TOOL, Text("x"), Image("image/png", "BBBB"), tool_call_id="a", tool_name="read"),
    said(Role.ASSISTANT, Text("done")),
    said(Role.USER, Text("and now?")),
)


@pytest.mark.parametrize(("kind", "status", "text"), [("ollama", 413, "too large"), ("llamacpp", 400, "cache_control")])
async def test_a_refusal_from_which_nothing_can_be_learned_is_an_error(kind: str, status: int, text: str) -> None:
    async with RefusingServer((status, {"error": {"message": text}})) as server:
        provider = await create(kind, server, environment={})
        _, error = await fails(provider, CompletionRequest("m", HISTORY))
        await provider.close()
    assert text in error.message
    assert len(server.calls) == 1


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    refusals=st.lists(REFUSALS, min_size=1, max_size=6),
    thinking=st.sampled_from([ThinkingLevel.OFF, ThinkingLevel.HIGH]),
    more=st.fixed_dictionaries(
        {}, optional={"temperature": st.just(0.5), "max_tokens": st.just(9000), "tool_choice": st.just("required")}
    ),
)
async def test_no_refused_request_is_sent_again_unchanged(
    kind: str, refusals: list[tuple[int, str, str]], thinking: ThinkingLevel, more: dict[str, Any]
) -> None:
    answers = [(status, {"error": {"message": text, "type": name, "code": name}}) for status, text, name in refusals]
    async with RefusingServer(*answers) as server:
        provider = await create(kind, server, environment={}, max_tokens=8000)
        request = CompletionRequest("m", HISTORY, tools=(READ,), system="s", thinking=thinking, **more)
        await fails(provider, request)
        await provider.close()
    sent = [(call.path, call.body) for call in server.calls]
    assert all(one not in sent[:at] for at, one in enumerate(sent)), refusals
