"""Requests to an Ollama server are valid for any history and settings."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doubles.conversation import assistant, result, user
from doubles.ollama_rules import violations
from yarrow.config.settings import ProviderSettings
from yarrow.message import Block, Image, Message, Opaque, Role, Text, Thinking, ThinkingLevel, ToolCall, ToolSpec
from yarrow.provider.base import CompletionRequest
from yarrow.provider.history_repair import HIDDEN_IMAGE, MISSING_RESULT, Target
from yarrow.provider.ollama.capabilities import FIELD_MARK, OllamaCapabilities, ThinkingStyle
from yarrow.provider.ollama.request import encode_ollama_request
from yarrow.provider.request_body import to_json

HERE = Target("here", "m")
ABLE = OllamaCapabilities(8192, images=True, thinking="switch")
STYLES: tuple[ThinkingStyle, ...] = ("none", "switch", "level", "unknown")
READ = ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}})
PNG = Image("image/png", "iVBORw0KGgo=")


def body(
    *messages: Message, abilities: OllamaCapabilities = ABLE, configured: ProviderSettings | None = None, **more: Any
) -> dict[str, Any]:
    request = CompletionRequest("m", messages or (user("hi"),), **more)
    written = encode_ollama_request(request, HERE, settings=configured or ProviderSettings(), capabilities=abilities)
    return json.loads(to_json(written))


# -- the law -------------------------------------------------------------------------------------------------------

TOKENS = ["<think>", "</tool_call>", '"', "\r\n", "\u2028", "\x00", "\ud83c", " ", "", "{}", "🌍", "x"]
texts = st.lists(st.sampled_from(TOKENS), max_size=4).map("".join)
ids = st.sampled_from(["", " ", "a", "b", "call_1", "call_2", "x" * 60])
blocks: st.SearchStrategy[Block] = st.one_of(
    st.builds(Text, texts),
    st.builds(Thinking, texts, st.sampled_from(["", FIELD_MARK, '{"field":"role"}', "{"])),
    st.builds(
        ToolCall,
        ids,
        st.sampled_from(["bash", "", "functions.bash", "x" * 80, "ä b"]),
        st.sampled_from(["{}", '{"a":1}', "", "null", '{"a":', "[]", '{"a":"\ud83c"}', '{"a":1e999}']),
        texts,
    ),
    st.builds(
        Image,
        st.sampled_from(["image/png", "image/webp", "image/gif", "text/html"]),
        st.sampled_from(["AAAA", "", "AAA", "!AAAA", "data:image/png;base64,AAAA", "é"]),
    ),
    st.builds(Opaque, st.sampled_from(["", "{", "[]", '{"reasoning_details":5}'])),
)
messages = st.builds(
    Message,
    id=st.just("m"),
    role=st.sampled_from(Role),
    content=st.lists(blocks, max_size=4).map(tuple),
    timestamp=st.just(""),
    tool_call_id=ids,
    tool_name=st.sampled_from(["", "bash"]),
    is_error=st.booleans(),
    incomplete=st.sampled_from([False, False, False, True]),
    provider=st.sampled_from(["here", "there"]),
    model=st.sampled_from(["m", "n"]),
)
histories = st.lists(messages, max_size=10).map(tuple)
schemas = st.sampled_from(
    [
        {"type": "object"},
        {"type": "object", "properties": {"a": True, "b": {"anyOf": [False, {"type": "string"}]}}},
        {"type": "object", "properties": {"c": {"type": "object", "properties": {"properties": False}}}},
    ]
)
requests = st.builds(
    CompletionRequest,
    model=st.just("m"),
    messages=histories,
    tools=st.lists(st.builds(ToolSpec, st.just("bash"), texts, schemas), max_size=1).map(tuple),
    system=texts,
    thinking=st.sampled_from(ThinkingLevel),
    max_tokens=st.sampled_from([0, 5]),
    temperature=st.sampled_from([None, 0, 0.5]),
    tool_choice=st.sampled_from(["auto", "none", "required"]),
)
abilities = st.builds(
    OllamaCapabilities, st.sampled_from([1, 8192]), st.booleans(), st.booleans(), st.sampled_from(STYLES)
)


@settings(max_examples=400)
@given(requests, abilities, st.sampled_from([0, 77]))
def test_law_1_any_history_with_any_settings_is_valid(
    request: CompletionRequest, able: OllamaCapabilities, max_tokens: int
) -> None:
    configured = ProviderSettings(max_tokens=max_tokens)
    written = json.loads(to_json(encode_ollama_request(request, HERE, settings=configured, capabilities=able)))
    assert violations(written) == []
    assert written["options"]["num_ctx"] == able.window
    assert able.images or not any("images" in message for message in written["messages"])
    assert able.tools or "tools" not in written
    assert able.thinking != "none" or "think" not in written


# -- messages ------------------------------------------------------------------------------------------------------


def test_an_ordinary_history() -> None:
    history = (
        user("hi", PNG),
        assistant(Thinking("hm", FIELD_MARK), "Let me see.", ToolCall("a", "read", '{"path":"x", "n":1.50}')),
        result("a", "text", tool_name="other"),
        assistant(Thinking("tags"), "One."),
        user("ok"),
    )
    call = {"id": "a", "function": {"index": 0, "name": "read", "arguments": {"path": "x", "n": 1.5}}}
    assert body(*history, system="Be brief.")["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi", "images": ["iVBORw0KGgo="]},
        {"role": "assistant", "content": "Let me see.", "thinking": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_name": "read", "tool_call_id": "a", "content": "text"},
        {"role": "assistant", "content": "One."},
        {"role": "user", "content": "ok"},
    ]


def test_arguments_are_sent_as_they_were_written() -> None:
    request = CompletionRequest("m", (user("hi"), assistant(ToolCall("a", "f", '{"n":1.50,"a":1}')), result("a", "x")))
    assert b'"arguments":{"n":1.50,"a":1}' in to_json(
        encode_ollama_request(request, HERE, settings=ProviderSettings(), capabilities=ABLE)
    )


def test_case_P_16_an_unanswered_call_gets_a_result() -> None:
    sent = body(user("go"), assistant(ToolCall("t1", "bash")), user("go on"))["messages"]
    assert sent[2] == {"role": "tool", "tool_name": "bash", "tool_call_id": "t1", "content": MISSING_RESULT}


def test_case_P_18_blank_texts_are_not_sent() -> None:
    sent = body(user("go"), assistant("", ToolCall("a", "ls")), result("a", ""), user(" \n"), system="")["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    assert sent[2]["content"].strip()


def test_thinking_of_another_model_is_not_sent() -> None:
    sent = body(user("hi"), assistant(Thinking("hm", FIELD_MARK), "x", model="n"), user("ok"))["messages"]
    assert sent[1] == {"role": "assistant", "content": "x"}


@pytest.mark.parametrize(
    ("image", "able"),
    [
        (PNG, OllamaCapabilities()),
        (Image("image/gif", PNG.data), ABLE),
        (Image("image/png", "data:image/png;base64,AAAA"), ABLE),
        (Image("image/png", "AA*AA"), ABLE),
        (Image("image/png", ""), ABLE),
    ],
)
def test_an_image_for_a_model_without_images_becomes_a_note(image: Image, able: OllamaCapabilities) -> None:
    assert body(user("look", image), abilities=able)["messages"] == [
        {"role": "user", "content": f"look\n\n{HIDDEN_IMAGE}"}
    ]


# -- fields --------------------------------------------------------------------------------------------------------


def test_case_P_13_the_context_size_is_always_sent_and_truncation_disabled() -> None:
    sent = body()
    assert sent["options"] == {"num_ctx": 8192}
    assert (sent["truncate"], sent["shift"], sent["stream"]) == (False, False, True)
    assert sent.keys() == {"model", "messages", "options", "truncate", "shift", "stream", "think"}


def test_the_requests_values_override_configured_ones() -> None:
    configured = ProviderSettings(max_tokens=77, temperature=0.5)
    assert body(configured=configured)["options"] == {"num_ctx": 8192, "num_predict": 77, "temperature": 0.5}
    options = body(configured=configured, max_tokens=5, temperature=0.0)["options"]
    assert options == {"num_ctx": 8192, "num_predict": 5, "temperature": 0.0}


def test_the_configured_body_is_merged_last() -> None:
    extra = {"keep_alive": "1h", "options": {"top_k": 5}, "shift": None, "stream": False}
    sent = body(configured=ProviderSettings(extra_body=extra))
    assert (sent["keep_alive"], sent["options"], sent["stream"]) == ("1h", {"num_ctx": 8192, "top_k": 5}, True)
    assert "shift" not in sent


@pytest.mark.parametrize(
    ("style", "level", "think"),
    [
        ("switch", ThinkingLevel.OFF, False),
        ("switch", ThinkingLevel.MEDIUM, True),
        ("level", ThinkingLevel.OFF, "low"),
        ("level", ThinkingLevel.MEDIUM, "medium"),
        ("level", ThinkingLevel.MAX, "high"),
        ("unknown", ThinkingLevel.OFF, None),
        ("unknown", ThinkingLevel.LOW, True),
        ("none", ThinkingLevel.HIGH, None),
    ],
)
def test_thinking(style: ThinkingStyle, level: ThinkingLevel, think: bool | str | None) -> None:
    assert body(abilities=OllamaCapabilities(thinking=style), thinking=level).get("think") == think


def test_tools() -> None:
    function = {"name": "read", "description": "Reads.", "parameters": READ.parameters}
    assert body(tools=(READ,))["tools"] == [{"type": "function", "function": function}]
    assert "tools" not in body(tools=(READ,), tool_choice="none")
    assert "tools" not in body(tools=(READ,), abilities=OllamaCapabilities(tools=False))


def test_unsupported_parts_of_a_schema_are_omitted() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "a": True,
            "b": {"type": ["string", "null"], "required": True, "enum": "x", "description": None, "minLength": 1},
            "properties": {"anyOf": [True, {"type": "string"}], "const": 5},
        },
        "$defs": {"d": False},
        "required": ["a"],
        "additionalProperties": False,
    }
    before = json.dumps(schema)
    [tool] = body(tools=(ToolSpec("f", "", schema),))["tools"]
    assert tool["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "a": {},
            "b": {"type": ["string", "null"], "minLength": 1},
            "properties": {"anyOf": [{}, {"type": "string"}], "const": 5},
        },
        "$defs": {"d": {}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert json.dumps(schema) == before
