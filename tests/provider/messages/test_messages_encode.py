"""Law 1 for the messages format, and what becomes of what in a request."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doubles.conversation import assistant, calls, result, user
from doubles.messages_rules import violations
from yarrow.config.settings import ProviderSettings
from yarrow.message import (
    Block,
    Image,
    Message,
    Opaque,
    Role,
    Text,
    Thinking,
    ThinkingLevel,
    ToolCall,
    ToolSpec,
)
from yarrow.provider.backend_errors import Backend
from yarrow.provider.base import (
    CallPiece,
    CompletionRequest,
    OpaquePiece,
    ProviderEvent,
    StopPiece,
    TextPiece,
    ThinkingPiece,
    UsagePiece,
)
from yarrow.provider.history_repair import (
    CONTINUE_PROMPT,
    HIDDEN_IMAGE,
    HISTORY_START,
    MISSING_RESULT,
    NO_OUTPUT,
    Target,
)
from yarrow.provider.messages.capabilities import EFFORTS, MessagesCapabilities, ThinkingStyle, infer_capabilities
from yarrow.provider.messages.decoder import MessagesDecoder
from yarrow.provider.messages.request import DEFAULT_MAX_TOKENS, UNKNOWN_MODEL_MAX_TOKENS, encode_messages_request
from yarrow.provider.request_body import to_json

CAPTURES = Path(__file__).parents[2] / "fixtures/wire/messages-style/captures"
HERE = Target("here", "m")
PNG = Image("image/png", "iVBORw0KGgo=")
READ = ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}})
SIGNED = Thinking("hm", '{"signature":"S1"}')
ADAPTIVE = infer_capabilities("claude-opus-4-8")


def body_of(
    *messages: Message,
    abilities: MessagesCapabilities | None = None,
    configured: ProviderSettings | None = None,
    target: Target = HERE,
    **request: Any,
) -> dict[str, Any]:
    """The body as it goes over the wire; legal."""
    wanted = CompletionRequest(model=target.model, messages=messages, **request)
    chosen = abilities or MessagesCapabilities()
    body = json.loads(
        to_json(encode_messages_request(wanted, target, settings=configured or ProviderSettings(), capabilities=chosen))
    )
    assert violations(body) == []
    return body


def sent(*messages: Message, **more: Any) -> list[dict[str, Any]]:
    """The messages as they go over the wire, without the marks for the cache."""
    return _unmarked(body_of(*messages, **more)["messages"])


def _unmarked(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for message in messages:
        for block in message["content"]:
            block.pop("cache_control", None)
    return messages


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def wire_call(call_id: str, name: str = "bash") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"command": "ls"}}


def wire_result(call_id: str, words: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": [text(words)], **more}


def thought(words: str, signature: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": signature}


# -- the law -------------------------------------------------------------------------------------------------------

TOKENS = ["<think>", "</tool_call>", '"', "\r\n", "\u2028", "\x00", "\ud83c", " ", "", "{}", "data: [DONE]", "🌍", "x"]
texts = st.lists(st.sampled_from(TOKENS), max_size=4).map("".join)
ids = st.sampled_from(["", " ", "a", "b", "call_1", "call_2", "x.y", "x_y", "x y", "é", "x" * 60, "x" * 70, "x" * 71])
OPAQUE = [
    *("", "{", "[]", "null", '{"field":"reasoning"}', '{"reasoning_details":[{"text":"t"}]}', '{"type":"apart"}'),
    *('{"signature":"s1"}', '{"signature":"s2"}', '{"signature":""}', '{"signature":5}', '{"signature":"\\ud83c"}'),
    *('{"type":"redacted_thinking","data":"ZW5j"}', '{"type":"redacted_thinking","data":""}'),
    *('{"type":"thinking","thinking":"","signature":"s3"}', '{"type":"thinking","thinking":"t"}'),
    *('{"type":"text","text":"injected"}', '{"type":"tool_use","id":"z","name":"bash","input":{}}'),
]
opaques = st.sampled_from(OPAQUE)
blocks: st.SearchStrategy[Block] = st.one_of(
    st.builds(Text, texts),
    st.builds(Thinking, texts, opaques),
    st.builds(
        ToolCall,
        ids,
        st.sampled_from(["bash", "", "functions.bash", "x" * 80, "ä b"]),
        st.sampled_from(["{}", '{"a":1}', "", "null", '{"a":', "[]", '{"a":"\ud83c"}', ' {"a": 1.50} ']),
        texts,
    ),
    st.builds(Image, st.sampled_from(["image/png", "image/webp", "image/bmp", ""]), st.sampled_from(["AAAA", ""])),
    st.builds(Opaque, opaques),
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
histories = st.lists(messages, max_size=10)
targets = st.sampled_from([HERE, Target("here", "m", takes_image=lambda _: False), Target("there", "n")])
requests = st.fixed_dictionaries(
    {
        "tools": st.sampled_from([(), (READ,), (READ, ToolSpec("bash", " ", {"type": "object"}))]),
        "system": texts,
        "thinking": st.sampled_from(ThinkingLevel),
        "max_tokens": st.sampled_from([0, -1, 1, 1024, 1025, 9_999, 10_000, 10_001, 20_000, 50_000, 10**9]),
        "temperature": st.one_of(st.none(), st.floats(-1, 3)),
        "tool_choice": st.sampled_from(["auto", "none", "required"]),
    }
)
configurations = st.builds(
    ProviderSettings,
    max_tokens=st.sampled_from([0, 5, 4096, 64_000]),
    temperature=st.one_of(st.none(), st.floats(0, 2)),
)
abilities = st.builds(
    MessagesCapabilities,
    style=st.sampled_from(["budget", "adaptive", "none"]),
    max_output=st.sampled_from([0, 1, 1024, 2048, 8192, 10_000, 20_000, 64_000, 128_000]),
    takes_temperature=st.booleans(),
    takes_forced_choice=st.booleans(),
    efforts=st.lists(st.sampled_from(EFFORTS), unique=True).map(lambda few: tuple(e for e in EFFORTS if e in few)),
)


@settings(max_examples=400)
@given(histories, targets, requests, configurations, abilities)
def test_law_1_any_history_becomes_a_valid_request(
    history: list[Message], target: Target, request: Any, configured: ProviderSettings, able: MessagesCapabilities
) -> None:
    body = body_of(*history, target=target, abilities=able, configured=configured, **request)
    if able.style == "adaptive" or not able.takes_temperature:
        assert body.get("temperature", 1.0) == 1.0 or "thinking" not in body
    assert not able.max_output or body["max_tokens"] <= able.max_output


@settings(max_examples=200)
@given(st.lists(st.sampled_from(["think", "plain", "steer", "user"]), max_size=8), st.booleans())
def test_law_1_holds_inside_a_run_of_tools(steps: list[str], signed: bool) -> None:
    """Histories that are all whole, so that the rule of thinking is what is tried."""
    history = [user("go")]
    for number, step in enumerate(steps):
        call_id = f"c{number}"
        thoughts = [SIGNED if signed else Thinking("x")] if step == "think" else []
        history += [assistant(*thoughts, *calls(call_id)), result(call_id, "ok")]
        if step == "steer":
            history.append(user("wait"))
        elif step == "user":
            history += [assistant("done"), user("more")]
    body_of(*history, thinking=ThinkingLevel.HIGH, tools=(READ,))


@given(histories, texts)
def test_a_longer_history_extends_the_shorter_request(history: list[Message], more: str) -> None:
    """Else the backend could not reuse its cache; the last message may grow."""
    short = sent(*history)
    long = sent(*history, user(f"more {more}"))
    assert long[: len(short) - 1] == short[:-1]


@given(histories)
def test_all_texts_are_sent(history: list[Message]) -> None:
    whole = json.dumps(sent(*history))
    cut = any(message.incomplete for message in history)
    for message in history:
        if message.role is Role.USER or (message.role is Role.TOOL and not cut):
            for block in () if message.incomplete else message.content:
                if isinstance(block, Text) and block.text.strip():
                    words = block.text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
                    assert json.dumps(words)[1:-1] in whole


@given(histories)
def test_signed_thinking_is_sent_only_to_its_backend(history: list[Message]) -> None:
    foreign = json.dumps(sent(*history, target=Target("elsewhere", "m")))
    assert '"signature"' not in foreign
    assert "redacted_thinking" not in foreign


# -- what becomes of what ------------------------------------------------------------------------------------------


def test_an_ordinary_history() -> None:
    history = (
        user("hi"),
        assistant("Let me see.", *calls("a")),
        result("a", "x.py"),
        assistant("One file."),
        user("ok"),
    )
    body = body_of(*history, system="Be brief.", tools=(READ,))
    mark = {"cache_control": {"type": "ephemeral"}}
    assert body == {
        "model": "m",
        "system": [text("Be brief.") | mark],
        "tools": [{"name": "read", "description": "Reads.", "input_schema": READ.parameters} | mark],
        "messages": [
            {"role": "user", "content": [text("hi")]},
            {"role": "assistant", "content": [text("Let me see."), wire_call("a")]},
            {"role": "user", "content": [wire_result("a", "x.py")]},
            {"role": "assistant", "content": [text("One file.")]},
            {"role": "user", "content": [text("ok") | mark]},
        ],
        "max_tokens": UNKNOWN_MODEL_MAX_TOKENS,
        "stream": True,
    }


def test_case_P_16_an_unanswered_call_gets_an_error_result() -> None:
    assert sent(user("go"), assistant(*calls("t1")), user("go on"))[1:] == [
        {"role": "assistant", "content": [wire_call("t1")]},
        {"role": "user", "content": [wire_result("t1", MISSING_RESULT, is_error=True), text("go on")]},
    ]


def test_case_P_17_signed_thinking_is_sent_back_unchanged() -> None:
    redacted = Opaque('{"type":"redacted_thinking","data":"D"}')
    answer = assistant(SIGNED, "text", *calls("a", "b"), redacted, *calls("c"))
    results = [result(call_id, "ok") for call_id in "cba"]
    for level in (ThinkingLevel.OFF, ThinkingLevel.HIGH):
        assert sent(user("go"), answer, *results, thinking=level)[1:] == [
            {
                "role": "assistant",
                "content": [
                    thought("hm", "S1"),
                    text("text"),
                    wire_call("a"),
                    wire_call("b"),
                    {"type": "redacted_thinking", "data": "D"},
                    wire_call("c"),
                ],
            },
            {"role": "user", "content": [wire_result(call_id, "ok") for call_id in "abc"]},
        ]


def test_case_P_18_blank_text_is_not_sent() -> None:
    history = (user(" \n"), user("go"), assistant("", *calls("a")), result("a", ""))
    body = body_of(*history, system=" ")
    assert "system" not in body
    assert _unmarked(body["messages"]) == [
        {"role": "user", "content": [text("go")]},
        {"role": "assistant", "content": [wire_call("a")]},
        {"role": "user", "content": [wire_result("a", NO_OUTPUT)]},
    ]


def test_case_P_19_all_results_precede_text_in_call_order() -> None:
    history = (user("go"), assistant(*calls("a", "b", "c")), result("c", "3"), user("steer"), result("a", "1"))
    assert sent(*history)[2]["content"] == [
        wire_result("a", "1"),
        wire_result("b", MISSING_RESULT, is_error=True),
        wire_result("c", "3"),
        text("steer"),
    ]


def test_adjacent_messages_of_one_role_are_merged() -> None:
    history = (user("a"), user("b"), assistant("c"), assistant("d", provider="there"), user("e"))
    assert [[block["text"] for block in message["content"]] for message in sent(*history)] == [
        ["a", "b"],
        ["c", "d"],
        ["e"],
    ]


def test_the_first_and_last_messages_are_the_users() -> None:
    assert [message["content"] for message in sent(assistant("hi "))] == [
        [text(HISTORY_START)],
        [text("hi ")],
        [text(CONTINUE_PROMPT)],
    ]
    assert sent() == [{"role": "user", "content": [text(HISTORY_START)]}]


def test_ids_are_made_valid_and_unique_in_calls_and_results() -> None:
    history = [user("go")]
    for call_id in ("x.y", "x_y", "x y", "functions.ls:0", "y" * 70):
        history += [assistant(*calls(call_id)), result(call_id, "ok")]
    body = sent(*history)
    given_ids = [message["content"][0]["id"] for message in body[1::2]]
    assert given_ids == ["x_y", "x_y_2", "x_y_3", "functions_ls_0", "y" * 64]
    assert [message["content"][0]["tool_use_id"] for message in body[2::2]] == given_ids


def test_arguments_keep_their_bytes() -> None:
    call = ToolCall("a", "bash", '{"n": 1.50, "big": 123456789012345678901234567890}')
    request = CompletionRequest(model="m", messages=(user("go"), assistant(call)))
    body = to_json(
        encode_messages_request(request, HERE, settings=ProviderSettings(), capabilities=MessagesCapabilities())
    )
    assert b'"input":{"n": 1.50, "big": 123456789012345678901234567890}' in body


# -- images --------------------------------------------------------------------------------------------------------

WIRE_PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG.data}}


def test_images_of_the_user_and_of_a_result() -> None:
    history = (user("look", PNG), assistant(*calls("a")), result("a", "x", PNG))
    body = sent(*history)
    assert body[0]["content"] == [text("look"), WIRE_PNG]
    assert body[2]["content"][0]["content"] == [text("x"), WIRE_PNG]


def test_images_of_an_error_follow_all_results() -> None:
    history = (user("go"), assistant(*calls("a", "b")), result("a", PNG, is_error=True), result("b", "2"))
    [failed, other, image] = sent(*history)[2]["content"]
    assert (failed["is_error"], failed["content"][0]["type"]) == (True, "text")
    assert (other, image) == (wire_result("b", "2"), WIRE_PNG)


@pytest.mark.parametrize("image", [Image("image/bmp", "AAAA"), Image("image/png", "")])
def test_an_unsupported_image_becomes_a_note(image: Image) -> None:
    assert sent(user(image))[0]["content"] == [text(HIDDEN_IMAGE)]


# -- thinking ------------------------------------------------------------------------------------------------------


def fields_of(
    level: ThinkingLevel, able: MessagesCapabilities | None = None, *history: Message, **more: Any
) -> dict[str, Any]:
    body = body_of(*(history or (user("hi"),)), abilities=able, thinking=level, tools=(READ,), **more)
    names = ("max_tokens", "temperature", "thinking", "output_config", "tool_choice")
    return {name: body[name] for name in names if name in body}


def budget(tokens: int, limit: int) -> dict[str, Any]:
    return {
        "thinking": {"type": "enabled", "budget_tokens": tokens},
        "temperature": 1.0,
        "max_tokens": limit,
    }


def adaptive(effort: str, limit: int = DEFAULT_MAX_TOKENS) -> dict[str, Any]:
    thinking = {"type": "adaptive", "display": "summarized"}
    return {"thinking": thinking, "output_config": {"effort": effort}, "max_tokens": limit}


OLD = infer_capabilities("claude-sonnet-4-5")
BUDGETS = [
    (ThinkingLevel.OFF, {}, {"max_tokens": DEFAULT_MAX_TOKENS}),
    (ThinkingLevel.MINIMAL, {}, budget(1_024, DEFAULT_MAX_TOKENS)),
    (ThinkingLevel.LOW, {}, budget(4_000, DEFAULT_MAX_TOKENS)),
    (ThinkingLevel.MEDIUM, {}, budget(10_000, DEFAULT_MAX_TOKENS)),
    (ThinkingLevel.HIGH, {}, budget(20_000, DEFAULT_MAX_TOKENS)),
    (ThinkingLevel.XHIGH, {}, budget(32_000, 64_000)),
    (ThinkingLevel.MAX, {}, budget(48_000, 64_000)),
    (ThinkingLevel.MEDIUM, {"temperature": 0.2}, budget(10_000, DEFAULT_MAX_TOKENS)),
    (ThinkingLevel.OFF, {"temperature": 0.2}, {"temperature": 0.2, "max_tokens": DEFAULT_MAX_TOKENS}),
    (ThinkingLevel.OFF, {"temperature": 1.7}, {"temperature": 1.0, "max_tokens": DEFAULT_MAX_TOKENS}),
    (ThinkingLevel.MEDIUM, {"max_tokens": 10_000}, budget(10_000, 20_000)),
    (ThinkingLevel.MEDIUM, {"max_tokens": 10_001}, budget(10_000, 10_001)),
    (ThinkingLevel.HIGH, {"max_tokens": 500}, budget(20_000, 20_500)),
    (ThinkingLevel.HIGH, {"max_tokens": 10**6}, budget(20_000, 64_000)),
    (
        ThinkingLevel.HIGH,
        {"tool_choice": "none"},
        budget(20_000, DEFAULT_MAX_TOKENS) | {"tool_choice": {"type": "none"}},
    ),
    # A choice that forces a call rules thinking out.
    (
        ThinkingLevel.HIGH,
        {"tool_choice": "required", "temperature": 0.2},
        {"temperature": 0.2, "max_tokens": DEFAULT_MAX_TOKENS, "tool_choice": {"type": "any"}},
    ),
]


@pytest.mark.parametrize(("level", "request_", "expected"), BUDGETS)
def test_thinking_with_a_budget(level: ThinkingLevel, request_: dict[str, Any], expected: dict[str, Any]) -> None:
    assert fields_of(level, OLD, **request_) == expected


def test_a_budget_is_lowered_to_the_models_output_limit() -> None:
    assert fields_of(ThinkingLevel.HIGH, MessagesCapabilities(max_output=8_192)) == budget(4_096, 8_192)
    assert fields_of(ThinkingLevel.HIGH, MessagesCapabilities(max_output=20_000)) == budget(10_000, 20_000)
    assert fields_of(ThinkingLevel.HIGH, MessagesCapabilities(max_output=2_000)) == {"max_tokens": 2_000}


@pytest.mark.parametrize(
    ("level", "able", "expected"),
    [
        (ThinkingLevel.OFF, ADAPTIVE, {"max_tokens": DEFAULT_MAX_TOKENS}),
        (ThinkingLevel.MINIMAL, ADAPTIVE, adaptive("low")),
        (ThinkingLevel.MEDIUM, ADAPTIVE, adaptive("medium")),
        (ThinkingLevel.MAX, ADAPTIVE, adaptive("max")),
        (
            ThinkingLevel.XHIGH,
            MessagesCapabilities("adaptive", efforts=("low", "high")),
            adaptive("high", UNKNOWN_MODEL_MAX_TOKENS),
        ),
        (
            ThinkingLevel.LOW,
            MessagesCapabilities("adaptive", efforts=("high",)),
            adaptive("high", UNKNOWN_MODEL_MAX_TOKENS),
        ),
        (
            ThinkingLevel.HIGH,
            MessagesCapabilities("none"),
            {"max_tokens": UNKNOWN_MODEL_MAX_TOKENS, "temperature": 0.5},
        ),
    ],
)
def test_thinking_without_a_budget(level: ThinkingLevel, able: MessagesCapabilities, expected: dict[str, Any]) -> None:
    assert fields_of(level, able, temperature=0.5) == expected


def test_an_unsupported_effort_is_omitted() -> None:
    assert "output_config" not in fields_of(ThinkingLevel.HIGH, MessagesCapabilities("adaptive", efforts=()))


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-fable-5-1"])
def test_a_model_without_forced_tools_may_choose(model: str) -> None:
    assert fields_of(ThinkingLevel.HIGH, infer_capabilities(model), tool_choice="required") == adaptive("high")


LOOP = (user("go"), assistant(SIGNED, *calls("a")), result("a", "1"))
UNTHOUGHT = (user("go"), assistant(*calls("a")), result("a", "1"))


@pytest.mark.parametrize(
    ("history", "thinks"),
    [
        (LOOP, True),
        ((*LOOP, assistant(*calls("b")), result("b", "2")), True),
        (UNTHOUGHT, False),
        ((user("go"), assistant(Thinking("x"), *calls("a")), result("a", "1")), False),
        ((*UNTHOUGHT, assistant("done"), user("more")), True),
        ((*LOOP, user("steer"), assistant(*calls("b")), result("b", "2")), False),
        ((*LOOP, user("steer"), assistant(SIGNED, *calls("b")), result("b", "2")), True),
        ((user("go"), assistant(SIGNED, *calls("a"), provider="there"), result("a", "1")), False),
    ],
)
def test_a_budget_needs_thinking_before_the_tools_that_run(history: Sequence[Message], thinks: bool) -> None:
    assert ("thinking" in fields_of(ThinkingLevel.HIGH, OLD, *history)) is thinks
    assert "thinking" in fields_of(ThinkingLevel.HIGH, ADAPTIVE, *history)


@pytest.mark.parametrize("opaque", OPAQUE)
def test_unsigned_thinking_is_not_sent(opaque: str) -> None:
    """Each of these is configured to think, and each is sent completely or not at all."""
    content = sent(user("a"), assistant(Opaque(opaque), "b"), user("c"))[1]["content"]
    whole = opaque in (
        '{"type":"redacted_thinking","data":"ZW5j"}',
        '{"type":"thinking","thinking":"","signature":"s3"}',
    )
    assert content == [*([json.loads(opaque)] if whole else []), text("b")]


@pytest.mark.parametrize(("style", "kept"), [("adaptive", []), ("none", []), ("budget", ["s2"])])
def test_thinking_after_a_changed_prefix_is_sent_only_if_required(style: ThinkingStyle, kept: list[str]) -> None:
    """A model with a budget wants the thoughts of the turn whose tools run; the others bind theirs to the beginning."""
    history = (
        user("go"),
        assistant(Thinking("hm", '{"signature":"s1"}'), "done"),
        user("on"),
        assistant(Thinking("so", '{"signature":"s2"}'), *calls("a")),
        result("a", "ok"),
    )
    messages = sent(
        *history, unbound=len(history), abilities=MessagesCapabilities(style=style), thinking=ThinkingLevel.HIGH
    )
    blocks = [block for message in messages for block in message["content"]]
    assert [block["signature"] for block in blocks if block["type"] == "thinking"] == kept


def test_thinking_without_an_answer_is_not_sent() -> None:
    assert sent(user("a"), assistant("b", SIGNED), user("c"))[1]["content"] == [text("b")]


# -- tools and the rest --------------------------------------------------------------------------------------------


def test_a_history_with_calls_but_no_tools_declares_them_and_forbids_calls() -> None:
    body = body_of(*LOOP)
    assert [tool["name"] for tool in body["tools"]] == ["bash"]
    assert body["tool_choice"] == {"type": "none"}
    assert "tools" not in body_of(user("hi"))


def test_the_configured_body_is_merged_last_into_objects() -> None:
    extra = {"metadata": {"user_id": "u"}, "tool_choice": {"type": "any"}, "temperature": None, "stream": False}
    configured = ProviderSettings(extra_body=extra, temperature=0.5, max_tokens=77)
    body = body_of(user("hi"), configured=configured, tools=(READ,))
    assert (body["metadata"], body["max_tokens"], body["stream"]) == ({"user_id": "u"}, 77, True)
    assert body["tool_choice"] == {"type": "any"}
    assert "temperature" not in body
    assert body_of(user("hi"), configured=configured, tools=(READ,), tool_choice="none")["tool_choice"] == {
        "type": "none"
    }


# -- round trips ---------------------------------------------------------------------------------------------------


def recorded(events: Sequence[ProviderEvent]) -> Message:
    """Blocks that a session would record of an answer: adjacent pieces of a kind are one block."""
    content: list[Block] = []
    for event in events:
        last = content[-1] if content else None
        match event:
            case TextPiece(words):
                content[-1:] = [Text(last.text + words)] if isinstance(last, Text) else [*content[-1:], Text(words)]
            case ThinkingPiece(words, opaque):
                joined = isinstance(last, Thinking)
                whole = Thinking(last.text + words, opaque or last.opaque) if joined else Thinking(words, opaque)
                content[-1:] = [whole] if joined else [*content[-1:], whole]
            case CallPiece(call):
                content.append(call)
            case OpaquePiece(data):
                content.append(Opaque(data))
            case UsagePiece() | StopPiece():
                pass
    return assistant(*content)


def replay(data: bytes, size: int) -> list[dict[str, Any]]:
    decoder = MessagesDecoder(Backend("here"))
    events = [event for at in range(0, len(data), size) for event in decoder.feed(data[at : at + size])]
    message = recorded([*events, *decoder.end()])
    return sent(user("go"), message, *(result(call.id, "x") for call in message.tool_calls), user("ok"))[1]["content"]


REPLAYS = [path for path in sorted(CAPTURES.glob("*.expected.json")) if '"replay"' in path.read_text("utf-8")]


@pytest.mark.parametrize("path", REPLAYS, ids=lambda path: path.stem)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_decoded_messages_are_sent_back_unchanged(path: Path, size: int) -> None:
    data = path.with_name(path.name.replace(".expected.json", ".sse")).read_bytes()
    assert replay(data, size) == json.loads(path.read_text("utf-8"))["replay"]


def test_replays_exist() -> None:
    assert len(REPLAYS) == 2


@pytest.mark.parametrize("size", [1, 50, 10_000])
def test_every_kind_of_thinking_round_trips(size: int) -> None:
    from doubles.messages_server import block, call, end, start, thinking

    data = start() + thinking(0, "a", "\u2028b", signature="S1") + thinking(1, "c", signature="S2")
    data += thinking(2, signature="S3") + block(3, {"type": "redacted_thinking", "data": "D"})
    data += call(4, "t1", "ls", "{}") + thinking(5, "d", signature="S4") + call(6, "t2", "ls", "{}") + end("tool_use")
    assert replay(data, size) == [
        thought("a\u2028b", "S1"),
        thought("c", "S2"),
        thought("", "S3"),
        {"type": "redacted_thinking", "data": "D"},
        wire_call("t1", "ls") | {"input": {}},
        thought("d", "S4"),
        wire_call("t2", "ls") | {"input": {}},
    ]
