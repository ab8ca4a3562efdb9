"""Law 1: whatever history is stored, what is sent of it is legal."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doubles.conversation import assistant, calls, result, user
from yarrow.message import (
    Block,
    Image,
    Message,
    Opaque,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolSpec,
)
from yarrow.provider.backend_errors import Backend
from yarrow.provider.base import (
    CallPiece,
    CompletionRequest,
    ProviderEvent,
    StopPiece,
    TextPiece,
    ThinkingPiece,
    UsagePiece,
)
from yarrow.provider.chat_completions.decoder import ChatDecoder
from yarrow.provider.chat_completions.request import encode_chat_request
from yarrow.provider.chat_request_rules import violations
from yarrow.provider.history_repair import (
    CONTINUE_PROMPT,
    HIDDEN_IMAGE,
    HISTORY_START,
    MISSING_RESULT,
    NO_OUTPUT,
    Target,
    repair_history,
)
from yarrow.provider.request_body import to_json

WIRE = Path(__file__).parents[1] / "fixtures" / "wire"
HERE = Target("here", "m")
BLIND = Target("here", "m", takes_image=lambda _: False)
PNG = Image("image/png", "iVBORw0KGgo=")


def sent(*messages: Message, target: Target = HERE, system: str = "") -> list[dict[str, Any]]:
    request = CompletionRequest(model="m", messages=messages, system=system)
    body = encode_chat_request(request, target, fields={}, extra={})
    assert violations(body) == []
    return body["messages"]


def wire_call(call_id: str, name: str = "bash", arguments: str = '{"command":"ls"}') -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


# -- the law -------------------------------------------------------------------------------------------------------

TOKENS = ["<think>", "</tool_call>", '"', "\r\n", "\u2028", "\x00", "\ud83c", " ", "", "{}", "data: [DONE]", "🌍", "x"]
texts = st.lists(st.sampled_from(TOKENS), max_size=4).map("".join)
ids = st.sampled_from(["", " ", "a", "b", "call_1", "call_2", "x" * 60])
blocks: st.SearchStrategy[Block] = st.one_of(
    st.builds(Text, texts),
    st.builds(Thinking, texts, st.sampled_from(["", '{"field":"reasoning"}', '{"field":"role"}', "{"])),
    st.builds(
        ToolCall,
        ids,
        st.sampled_from(["bash", "", "functions.bash", "x" * 80, "ä b"]),
        st.sampled_from(["{}", '{"a":1}', "", "null", '{"a":', "[]", '{"a":"\ud83c"}']),
        texts,
    ),
    st.builds(Image, st.sampled_from(["image/png", "image/webp"]), st.just("AAAA")),
    st.builds(
        Opaque, st.sampled_from(["", "{", "[]", '{"reasoning_details":[{"text":"t"}]}', '{"reasoning_details":5}'])
    ),
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


@settings(max_examples=600)
@given(histories, st.sampled_from([HERE, BLIND, Target("there", "n")]), texts)
def test_law_1_any_history_becomes_a_valid_request(history: list[Message], target: Target, system: str) -> None:
    request = CompletionRequest(model=target.model, messages=tuple(history), system=system)
    body = encode_chat_request(request, target, fields={}, extra={})
    assert violations(body) == []
    assert json.loads(to_json(body))["model"] == target.model


@given(histories)
def test_all_texts_are_sent(history: list[Message]) -> None:
    whole = json.dumps(sent(*history))
    cut = any(message.incomplete for message in history)
    for message in history:
        if message.role is Role.USER or (message.role is Role.TOOL and not cut):
            for block in () if message.incomplete else message.content:
                if isinstance(block, Text) and block.text.strip():
                    assert json.dumps(block.text)[1:-1] in whole


@given(histories, texts)
def test_a_longer_history_extends_the_shorter_request(history: list[Message], more: str) -> None:
    """Else no backend could reuse its cache; the last message may grow."""
    short = sent(*history)
    long = sent(*history, user(f"more {more}"))
    assert long[: len(short) - 1] == short[:-1]


@given(histories)
def test_repair_is_done_once(history: list[Message]) -> None:
    once = repair_history(history, HERE)
    assert list(repair_history(once, HERE)) == list(once)


# -- what becomes of what ------------------------------------------------------------------------------------------


def test_an_ordinary_history_is_sent_unchanged() -> None:
    history = (
        user("hi"),
        assistant("Let me see.", *calls("a")),
        result("a", "x.py"),
        assistant("One file."),
        user("ok"),
    )
    assert sent(*history, system="Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [wire_call("a")]},
        {"role": "tool", "tool_call_id": "a", "content": "x.py"},
        {"role": "assistant", "content": "One file."},
        {"role": "user", "content": "ok"},
    ]
    assert list(repair_history(history, HERE)) == list(history)


def test_case_P_16_an_unanswered_call_gets_an_error_result() -> None:
    assert sent(user("go"), assistant(*calls("t1")), user("go on"))[1:] == [
        {"role": "assistant", "content": None, "tool_calls": [wire_call("t1")]},
        {"role": "tool", "tool_call_id": "t1", "content": MISSING_RESULT},
        {"role": "user", "content": "go on"},
    ]


def test_results_directly_follow_their_calls_in_order() -> None:
    history = (user("go"), assistant(*calls("a", "b", "c")), result("c", "3"), user("steer"), result("a", "1"))
    roles = [(message["role"], message["content"]) for message in sent(*history)[2:]]
    assert roles == [("tool", "1"), ("tool", MISSING_RESULT), ("tool", "3"), ("user", "steer")]


def test_orphaned_and_repeated_results_become_user_text() -> None:
    history = (
        user("go"),
        assistant(*calls("a")),
        result("a", "1"),
        result("a", "2", tool_name="bash"),
        result("z", "3"),
    )
    last = sent(*history)[-1]
    assert last["role"] == "user"
    assert "Result of bash for a call that is no longer shown:\n\n2" in last["content"]
    assert last["content"].endswith("3")


def test_repeated_ids_are_made_unique_with_their_results() -> None:
    turn = (assistant(*calls("call_0", "call_0")), result("call_0", "1"), result("call_0", "2"))
    again = (assistant(*calls("call_0")), result("call_0", "3"))
    body = sent(user("go"), *turn, *again)
    given_ids = [call["id"] for message in body for call in message.get("tool_calls", [])]
    answers = [(message["tool_call_id"], message["content"]) for message in body if message["role"] == "tool"]
    assert given_ids[0] == "call_0"
    assert answers == list(zip(given_ids, ["1", "2", "3"], strict=True))


def test_case_P_25_an_empty_id_is_filled_in_call_and_result() -> None:
    body = sent(user("go"), assistant(ToolCall("", "read")), result("", "text"))
    assert body[1]["tool_calls"][0]["id"] == body[2]["tool_call_id"] == "call_1"


@pytest.mark.parametrize(("provider", "kept"), [("here", True), ("there", False)])
def test_a_long_id_is_sent_only_to_its_backend(provider: str, kept: bool) -> None:
    long = "call_" + "s" * 60
    body = sent(user("go"), assistant(ToolCall(long, "read"), provider=provider), result(long, "text"))
    assert (body[1]["tool_calls"][0]["id"] == long) is kept
    assert body[2]["content"] == "text"


def test_case_P_04_unusable_names_and_arguments_are_made_valid() -> None:
    odd = ToolCall("a", "functions.bash", '{"comm', invalid_arguments='{"comm')
    body = sent(user("go"), assistant(odd, ToolCall("b", "", "")))
    assert body[1]["tool_calls"] == [wire_call("a", "functions_bash", "{}"), wire_call("b", "unknown", "{}")]


def test_case_P_18_blank_text_is_not_sent_and_an_empty_result_is_noted() -> None:
    body = sent(user("go"), user(" \n"), assistant("", *calls("a")), result("a", ""), system=" ")
    assert body == [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [wire_call("a")]},
        {"role": "tool", "tool_call_id": "a", "content": NO_OUTPUT},
    ]


def test_incomplete_and_thinking_only_messages_are_omitted() -> None:
    half = assistant("Half an ans", *calls("a"), incomplete=True)
    assert sent(user("go"), half, assistant(Thinking("hm")), user("again")) == [
        {"role": "user", "content": "go\n\nagain"}
    ]


def test_results_of_an_incomplete_answer_are_omitted_with_it() -> None:
    half = assistant("Half", *calls("a"), incomplete=True)
    whole = (assistant(*calls("a")), result("a", "1"))
    body = sent(user("go"), *whole, half, result("a", "aborted"), user("again"))
    assert [message["content"] for message in body] == ["go", None, "1", "again"]


def test_adjacent_roles_are_merged_and_the_user_starts_and_ends() -> None:
    body = sent(assistant("one"), assistant("two"), user("a"), user("b"), assistant("three"))
    assert [message["content"] for message in body] == [HISTORY_START, "one\n\ntwo", "a\n\nb", "three", CONTINUE_PROMPT]
    assert sent() == [{"role": "user", "content": HISTORY_START}]


def test_images_of_the_user_are_data_urls() -> None:
    [message] = sent(user("look", PNG))
    url = {"url": "data:image/png;base64,iVBORw0KGgo="}
    assert message["content"] == [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": url}]


def test_images_of_results_follow_all_results_of_the_turn() -> None:
    body = sent(
        user("go"), assistant(*calls("a", "b")), result("a", PNG, tool_name="read"), result("b", "x"), user("and?")
    )
    assert [message["role"] for message in body] == ["user", "assistant", "tool", "tool", "user"]
    parts = body[-1]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url", "text"]
    assert "read" in parts[0]["text"]


def test_an_unsupported_image_is_replaced_by_a_note() -> None:
    body = sent(user("look", PNG), assistant(*calls("a")), result("a", PNG), target=BLIND)
    assert body[0]["content"] == f"look\n\n{HIDDEN_IMAGE}"
    assert body[2]["content"] == HIDDEN_IMAGE


@pytest.mark.parametrize(
    ("origin", "kept"),
    [
        ({}, True),
        ({"provider": "there"}, False),
        ({"model": "n"}, False),
    ],
)
def test_thinking_is_sent_back_in_its_field_to_its_backend(origin: dict[str, str], kept: bool) -> None:
    thoughts = (Thinking("Let me ", '{"field":"reasoning"}'), Thinking("think.", '{"field":"reasoning"}'))
    [_, message, _] = sent(user("go"), assistant(*thoughts, "42", **origin), user("ok"))
    expected = {"role": "assistant", "content": "42"} | ({"reasoning": "Let me think."} if kept else {})
    assert message == expected


def test_reasoning_details_are_sent_back_instead_of_the_plain_text() -> None:
    details = [{"type": "reasoning.encrypted", "data": "e", "index": 0}]
    opaque = Opaque(json.dumps({"reasoning_details": details}))
    [_, message, _] = sent(user("go"), assistant(Thinking("t", '{"field":"reasoning"}'), "42", opaque), user("ok"))
    assert message == {"role": "assistant", "content": "42", "reasoning_details": details}


# -- round trips ---------------------------------------------------------------------------------------------------


def recorded(events: Sequence[ProviderEvent]) -> Message:
    """Blocks that a session would record of an answer."""
    content: list[Block] = []
    for event in events:
        match event:
            case TextPiece(text):
                content.append(Text(text))
            case ThinkingPiece(text, opaque):
                content.append(Thinking(text, opaque))
            case CallPiece(call):
                content.append(call)
            case UsagePiece() | StopPiece():
                pass
            case _:
                raise AssertionError(event)
    return assistant(*content)


CHATS = [*WIRE.glob("openai-style/*.expected.json"), *WIRE.glob("llamacpp-style/*.expected.json")]
REPLAYS = [path for path in sorted(CHATS) if '"replay"' in path.read_text("utf-8")]


@pytest.mark.parametrize("path", REPLAYS, ids=lambda path: f"{path.parent.name}/{path.stem}")
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_decoded_messages_are_sent_back_unchanged(path: Path, size: int) -> None:
    decoder = ChatDecoder(Backend("here"))
    data = path.parent.joinpath(path.name.replace(".expected.json", ".sse")).read_bytes()
    events = [event for at in range(0, len(data), size) for event in decoder.feed(data[at : at + size])]
    message = recorded([*events, *decoder.end()])
    body = sent(user("go"), message, *(result(call.id, "x") for call in message.tool_calls), user("ok"))
    assert body[1] == json.loads(path.read_text("utf-8"))["replay"]


def test_replays_exist() -> None:
    assert len(REPLAYS) == 2


# -- the body ------------------------------------------------------------------------------------------------------

READ = ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}})


def test_the_configured_body_is_merged_last_into_objects() -> None:
    request = CompletionRequest(model="m", messages=(user("hi"),), tools=(READ,))
    fields = {"temperature": 0.5, "stream_options": {"include_usage": True}}
    extra = {
        "stream_options": {"more": 1},
        "temperature": None,
        "seed": 7,
        "stream": False,
        "tool_choice": "required",
    }
    body = encode_chat_request(request, HERE, fields=fields, extra=extra)
    assert body["stream_options"] == {"include_usage": True, "more": 1}
    assert "temperature" not in body
    assert (body["seed"], body["stream"], body["tool_choice"]) == (7, True, "required")


@pytest.mark.parametrize(
    ("tools", "configured", "expected"), [((READ,), "required", "none"), ((READ,), None, "none"), ((), None, None)]
)
def test_the_requests_tool_choice_wins(
    tools: tuple[ToolSpec, ...], configured: str | None, expected: str | None
) -> None:
    request = CompletionRequest(model="m", messages=(user("hi"),), tools=tools, tool_choice="none")
    body = encode_chat_request(request, HERE, fields={}, extra={"tool_choice": configured})
    assert body.get("tool_choice") == expected
    assert violations(body) == []


def test_lone_surrogates_in_requests_are_replaced() -> None:
    assert json.loads(to_json({"a": ["x\ud83c"], "b\ud83c": 1})) == {"a": ["x\ufffd"], "b\ufffd": 1}
