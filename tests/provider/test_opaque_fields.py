"""Opaque data of a gateway in the chat format is sent back to it unchanged, and to no other backend."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doubles.chat_server import ChatServer, page, says
from yarrow.config.settings import ProviderSettings
from yarrow.message import Message, Opaque, Role, Text, ToolCall
from yarrow.provider.backend_errors import Backend
from yarrow.provider.base import CallPiece, CompletionRequest, OpaquePiece
from yarrow.provider.chat_completions.decoder import ChatDecoder
from yarrow.provider.chat_completions.request import encode_messages
from yarrow.provider.history_repair import Target
from yarrow.provider.http.client import HttpClient
from yarrow.provider.openai.adapter import OpenAiProvider

SIGNATURE = "U0lH" * 10
BLOCKS = [
    {"type": "thinking", "thinking": "let me see", "signature": SIGNATURE},
    {"type": "redacted_thinking", "data": "abc"},
    {"type": "thinking", "thinking": "and\nmore", "signature": "c2ln"},
]
EXTRA = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
SPECIFIC = {"provider_specific_fields": {"thought_signature": "czI="}}
CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}


def answer(*deltas: dict[str, Any]) -> tuple[Message, list[Any]]:
    """The message of a stream of deltas, as the same provider and model gave it."""
    decoder = ChatDecoder(Backend("acme"))
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    data = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    end = 'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}\n\ndata: [DONE]\n\n'
    events = [*decoder.feed((data + end).encode()), *decoder.end()]
    blocks = [
        Opaque(event.data) if isinstance(event, OpaquePiece) else event.call
        for event in events
        if isinstance(event, OpaquePiece | CallPiece)
    ]
    said = Message(id="a", role=Role.ASSISTANT, content=tuple(blocks), timestamp="", provider="acme", model="m")
    return said, events


def sent(said: Message, provider: str = "acme", model: str = "m") -> dict[str, Any]:
    """The assistant message of the next request."""
    question = Message(id="u", role=Role.USER, content=(Text("go"),), timestamp="")
    result = Message(id="r", role=Role.TOOL, content=(Text("ok"),), timestamp="", tool_call_id="c1")
    request = CompletionRequest(model=model, messages=(question, said, result))
    return next(one for one in encode_messages(request, Target(provider, model)) if one["role"] == "assistant")


def fragments(blocks: list[dict[str, Any]], data: st.DataObject) -> list[dict[str, Any]]:
    """Blocks as LiteLLM streams them: the text in pieces, then the signature."""
    deltas: list[dict[str, Any]] = []
    for block in blocks:
        if block["type"] != "thinking":
            deltas.append({"thinking_blocks": [block]})
            continue
        cut = data.draw(st.integers(0, len(block["thinking"])))
        deltas += [
            {"thinking_blocks": [{"type": "thinking", "thinking": piece, "signature": None}]}
            for piece in (block["thinking"][:cut], block["thinking"][cut:])
        ]
        deltas.append({"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": block["signature"]}]})
    return deltas


@given(st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=4), st.data())
def test_case_RA_06_streamed_thinking_blocks_are_sent_back(blocks: list[dict[str, Any]], data: st.DataObject) -> None:
    said, _ = answer(*fragments(blocks, data), {"tool_calls": [CALL]})
    assert sent(said)["thinking_blocks"] == blocks


@pytest.mark.parametrize("fields", [EXTRA, SPECIFIC, EXTRA | SPECIFIC])
def test_case_RA_06_opaque_data_of_a_call_is_sent_back_with_it(fields: dict[str, Any]) -> None:
    later = {"index": 0, "function": {"arguments": ""}}
    for deltas in (({"tool_calls": [CALL | fields]},), ({"tool_calls": [CALL]}, {"tool_calls": [later | fields]})):
        said, _ = answer(*deltas)
        (call,) = sent(said)["tool_calls"]
        assert {name: call.get(name) for name in fields} == fields


@pytest.mark.parametrize("fields", [EXTRA, SPECIFIC])
def test_opaque_data_of_a_message_is_sent_back_with_it(fields: dict[str, Any]) -> None:
    said, _ = answer(fields, {"tool_calls": [CALL]})
    assert {name: sent(said).get(name) for name in fields} == fields


@pytest.mark.parametrize(("provider", "model"), [("other", "m"), ("acme", "other")])
def test_opaque_data_is_not_sent_to_another_provider_or_model(provider: str, model: str) -> None:
    said, _ = answer({"thinking_blocks": BLOCKS}, EXTRA, {"tool_calls": [CALL | EXTRA | SPECIFIC]})
    message = sent(said, provider, model)
    assert set(message) <= {"role", "content", "tool_calls"}
    assert set(message["tool_calls"][0]) == {"id", "type", "function"}


async def test_a_rejected_opaque_field_is_not_sent_again() -> None:
    said, _ = answer({"tool_calls": [CALL | EXTRA]})
    question = Message(id="u", role=Role.USER, content=(Text("go"),), timestamp="")
    result = Message(id="r", role=Role.TOOL, content=(Text("ok"),), timestamp="", tool_call_id="c1")
    async with ChatServer() as server:
        refusal = page(
            {"error": {"message": "messages.1.tool_calls.0.extra_content: Extra inputs are not permitted"}}, 400
        )
        server.replies = [refusal, says("a")]
        provider = OpenAiProvider(
            "acme", "m", settings=ProviderSettings(base_url=server.root), key="", http=HttpClient()
        )
        async for _ in provider.stream(CompletionRequest(model="m", messages=(question, said, result))):
            pass
        await provider.close()
        refused, again = (body["messages"][1]["tool_calls"][0] for body in server.prompts)
    assert "extra_content" in refused
    assert "extra_content" not in again


@pytest.mark.parametrize("opaque", ["", "x", "[1]", '{"reasoning_details": 5}', '{"extra_content": "text"}', "null"])
def test_opaque_data_of_another_kind_is_omitted(opaque: str) -> None:
    call = ToolCall("c1", "read", opaque=opaque)
    said = Message(
        id="a", role=Role.ASSISTANT, content=(Opaque(opaque), call), timestamp="", provider="acme", model="m"
    )
    assert set(sent(said)) <= {"role", "content", "tool_calls"}
    assert set(sent(said)["tool_calls"][0]) == {"id", "type", "function"}
