"""The requests of the Responses API: their fields and items, and the reasoning that goes back."""

import json
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter

from doubles.conversation import assistant, calls, result, user
from doubles.responses_rules import violations
from doubles.spoken import record
from yarrow.config.settings import ProviderSettings
from yarrow.message import Block, Image, Message, Opaque, Text, Thinking, ThinkingLevel, ToolCall, ToolSpec
from yarrow.provider.backend_errors import Backend
from yarrow.provider.base import CompletionRequest
from yarrow.provider.history_repair import CONTINUE_PROMPT, HIDDEN_IMAGE, HISTORY_START, MISSING_RESULT, Target
from yarrow.provider.request_body import to_json
from yarrow.provider.responses.decoder import ResponsesDecoder
from yarrow.provider.responses.request import ReplayRules, encode_responses_request

WIRE = Path(__file__).parents[2] / "fixtures/wire/responses"
PNG = Image("image/png", "iVBORw0KGgo=")
READ = ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}})
REQUESTS: TypeAdapter[Any] = TypeAdapter(ResponseCreateParamsStreaming)
RULES, VENDOR = ReplayRules(), ReplayRules(is_vendor=True)


def body_of(
    *messages: Message,
    rules: ReplayRules = RULES,
    configured: ProviderSettings | None = None,
    model: str = "m",
    **request: Any,
) -> dict[str, Any]:
    """The body as it goes over the wire; legal, also for the vendor's own types."""
    made = encode_responses_request(
        CompletionRequest(model=model, messages=messages, **request),
        Target("here", model),
        settings=configured or ProviderSettings(),
        rules=rules,
    )
    body = json.loads(to_json(made))
    assert violations(body, is_vendor=rules.is_vendor) == []
    known = body | {"input": [*map(completed, body["input"])]}
    # The types drop unknown fields, and parse a list only when the dump reads it.
    assert REQUESTS.dump_python(REQUESTS.validate_python(known), mode="json") == known
    return body


def completed(item: dict[str, Any]) -> dict[str, Any]:
    """An item with the id that the vendor documents; other servers need none, or gave one that the vendor refuses."""
    place = {"message": "msg_0", "reasoning": "rs_0"}.get(item.get("type", ""))
    return {"id": place} | item if place else item


def sent(*messages: Message, rules: ReplayRules = RULES) -> list[dict[str, Any]]:
    return body_of(*messages, rules=rules)["input"]


def says(words: str) -> dict[str, Any]:
    return {"role": "user", "content": words}


def answers(words: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": words, "annotations": []}]
    return {"type": "message", "role": "assistant", "status": "completed", "content": content, **more}


def short(words: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": words, **more}


def fields(*messages: Message, **more: Any) -> dict[str, Any]:
    body = body_of(*(messages or (user("hi"),)), **more)
    return {name: value for name, value in body.items() if name not in ("model", "input", "store", "stream", "include")}


# -- fields --------------------------------------------------------------------------------------------------------


def test_nothing_is_stored_and_reasoning_comes_back_encrypted() -> None:
    body = body_of(user("hi"), system="Be brief.", tools=(READ,), session_id="s1", thinking=ThinkingLevel.HIGH)
    assert body == {
        "model": "m",
        "input": [says("hi")],
        "instructions": "Be brief.",
        "tools": [
            {
                "type": "function",
                "name": "read",
                "description": "Reads.",
                "parameters": READ.parameters,
                "strict": False,
            }
        ],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "s1",
        "reasoning": {"effort": "high", "summary": "auto"},
        "stream": True,
    }


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (fields(), {}),
        (fields(system=" \n"), {}),
        (fields(session_id="x" * 80), {"prompt_cache_key": "x" * 64}),
        (fields(max_tokens=5), {"max_output_tokens": 16}),
        (fields(max_tokens=50), {"max_output_tokens": 50}),
        (fields(configured=ProviderSettings(max_tokens=70)), {"max_output_tokens": 70}),
        (fields(temperature=0.5), {"temperature": 0.5}),
        (fields(temperature=0.5, rules=VENDOR, model="gpt-5.1"), {}),
        (fields(temperature=0.5, rules=VENDOR, model="gpt-4.1"), {"temperature": 0.5}),
        (fields(thinking=ThinkingLevel.HIGH, rules=VENDOR, model="gpt-4.1"), {}),
        (fields(thinking=ThinkingLevel.MAX), {"reasoning": {"effort": "max", "summary": "auto"}}),
        (fields(configured=ProviderSettings(extra_body={"include": None, "top_p": 0.5})), {"top_p": 0.5}),
    ],
)
def test_optional_fields(made: dict[str, Any], expected: dict[str, Any]) -> None:
    assert made == expected


def test_a_tool_choice_needs_tools() -> None:
    assert body_of(user("hi"), tools=(READ,), tool_choice="required")["tool_choice"] == "required"
    assert "tool_choice" not in body_of(user("hi"), tool_choice="required")


# -- items ---------------------------------------------------------------------------------------------------------


def test_a_call_and_its_result() -> None:
    history = (user("go"), assistant("I look.", *calls("a", "b")), result("b", "two"), result("a", ""), user("on"))
    call = {"type": "function_call", "name": "bash", "arguments": '{"command":"ls"}'}
    assert sent(*history) == [
        says("go"),
        answers("I look."),
        call | {"call_id": "a"},
        call | {"call_id": "b"},
        {"type": "function_call_output", "call_id": "a", "output": "(no output)"},
        {"type": "function_call_output", "call_id": "b", "output": "two"},
        says("on"),
    ]


def test_the_ends_of_a_history() -> None:
    assert sent(assistant("hello")) == [says(HISTORY_START), answers("hello"), says(CONTINUE_PROMPT)]
    assert sent(user("go"), assistant(*calls("a")))[-1]["output"] == MISSING_RESULT
    assert sent(user("a"), user("b")) == [says("a\n\nb")]


def test_ids_of_calls_are_ones_that_the_server_accepts() -> None:
    history = (user("go"), assistant(*calls("a.b", "a_b", "x" * 90)), *(result(one, "r") for one in ("a.b", "a_b")))
    ids = [item["call_id"] for item in sent(*history) if item.get("type") == "function_call"]
    assert ids == ["a_b", "a_b_2", "x" * 64]


@pytest.mark.parametrize("rules", [RULES, VENDOR])
def test_images(rules: ReplayRules) -> None:
    """The vendor takes them in a result; a message of the user there would end the turn that the model thinks about."""
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"}
    items = sent(user("see", PNG), assistant(*calls("a")), result("a", "x", PNG), rules=rules)
    assert items[0] == {"role": "user", "content": [{"type": "input_text", "text": "see"}, image]}
    if rules.is_vendor:
        assert items[2]["output"] == [{"type": "input_text", "text": "x"}, image]
    else:
        assert items[2]["output"].startswith("x")
        assert items[3]["content"][1] == image
    assert sent(user("see", Image("text/html", "AAAA"))) == [says(f"see\n\n{HIDDEN_IMAGE}")]


# -- reasoning -----------------------------------------------------------------------------------------------------


def reasons(number: int = 1, **more: Any) -> Opaque:
    item = {"type": "reasoning", "id": f"rs_{number}", "encrypted_content": f"E{number}"} | more
    return Opaque(json.dumps(item))


def reasoned(number: int = 1) -> dict[str, Any]:
    return {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": f"E{number}"}


def marks(number: int = 1, **more: Any) -> Opaque:
    return Opaque(json.dumps({"type": "message", "id": f"msg_{number}"} | more))


def asks(call_id: str = "a") -> ToolCall:
    return ToolCall(call_id, "read", "{}", opaque=json.dumps({"id": f"fc_{call_id}"}))


def asked(call_id: str = "a", *, known: bool = True) -> dict[str, Any]:
    item = {"type": "function_call", "call_id": call_id, "name": "read", "arguments": "{}"}
    return item | ({"id": f"fc_{call_id}"} if known else {})


def spoken(words: str, number: int = 1, **more: Any) -> dict[str, Any]:
    return answers(words, id=f"msg_{number}", **more)


ANSWERS: dict[str, tuple[list[Block | str], list[dict[str, Any]]]] = {
    "reasoning before its call": ([Thinking("hm"), reasons(), asks()], [reasoned(), asked()]),
    "before parallel calls": ([reasons(), asks("a"), asks("b")], [reasoned(), asked("a"), asked("b")]),
    "two before one call": ([reasons(1), reasons(2), asks()], [reasoned(1), reasoned(2), asked()]),
    "before a message": ([reasons(), "Hi", marks()], [reasoned(), spoken("Hi")]),
    "before each": (
        [reasons(1), "Hi", marks(1, phase="commentary"), reasons(2), asks()],
        [reasoned(1), spoken("Hi", phase="commentary"), reasoned(2), asked()],
    ),
    "without a follower": (["Hi", reasons()], [answers("Hi")]),
    "whose message is blank": ([reasons(1), " \n", marks(1), reasons(2), asks()], [reasoned(2), asked()]),
    "twice the same": ([reasons(1), reasons(1), asks()], [asked(known=False)]),
    "without content": ([reasons(1, encrypted_content=None), asks()], [asked(known=False)]),
    "with another id": (
        [reasons(1, id="a.b"), asks()],
        [{"type": "reasoning", "summary": [], "encrypted_content": "E1"}, asked(known=False)],
    ),
    "a call alone": ([asks()], [asked(known=False)]),
    "a message alone": (["Hi", marks(1, phase="final_answer")], [answers("Hi", phase="final_answer")]),
    "two messages": (["Hi", marks(1), "Ho", marks(2)], [answers("Hi"), answers("Ho")]),
    "a message without a mark": ([reasons(), "Hi"], [reasoned(), answers("Hi")]),
    "readable": (
        [reasons(1, content=[{"type": "reasoning_text", "text": "t"}, {"type": "x"}, 5], status=None), asks()],
        [reasoned() | {"content": [{"type": "reasoning_text", "text": "t"}]}, asked()],
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_reasoning_goes_back_only_with_what_it_led_to(name: str) -> None:
    content, expected = ANSWERS[name]
    message = assistant(*content)
    history = (user("go"), message, *(result(call.id, "r") for call in message.tool_calls), user("on"))
    made = [item for item in sent(*history)[1:-1] if item.get("type") != "function_call_output"]
    assert made == expected
    for_vendor = [item for item in sent(*history, rules=VENDOR)[1:-1] if item.get("type") != "function_call_output"]
    assert for_vendor == [
        short(item["content"][0]["text"], **({"phase": item["phase"]} if "phase" in item else {}))
        if item["type"] == "message" and "id" not in item
        else item
        for item in expected
    ]


def test_another_model_or_provider_gets_neither_reasoning_nor_ids() -> None:
    content = (Thinking("hm"), reasons(), "Hi", marks(), asks())
    for more in ({"model": "n"}, {"provider": "there"}):
        items = sent(user("go"), assistant(*content, **more), result("a", "r"))
        assert items[1:3] == [answers("Hi"), asked(known=False)]


def test_a_model_that_is_switched_to_and_back_gets_its_own_reasoning() -> None:
    mine, other = assistant(reasons(1), asks("a")), assistant(reasons(2), asks("b"), model="n")
    items = sent(user("go"), mine, result("a", "r"), other, result("b", "r"), assistant(reasons(3), asks("c")))
    assert [item.get("id") for item in items if item.get("type") in ("reasoning", "function_call")] == [
        *("rs_1", "fc_a"),
        None,
        *("rs_3", "fc_c"),
    ]


def test_a_compaction_leaves_no_reasoning_without_its_call() -> None:
    """A summary replaces whole messages, also those between a call and its result."""
    kept = (user("A summary."), result("a", "late"), assistant(reasons(2), "Hi", marks(2)), user("on"))
    assert sent(*kept)[1:] == [reasoned(2), spoken("Hi", 2), says("on")]
    items = sent(user("A summary."), assistant(reasons(1)), assistant(asks("a")), result("a", "r"))
    assert items[1:3] == [asked(known=False), {"type": "function_call_output", "call_id": "a", "output": "r"}]


def test_an_answer_that_a_merge_repeats_has_its_reasoning_once() -> None:
    turn = (assistant(reasons(), asks()), result("a", "r"))
    items = sent(user("go"), *turn, *turn)
    assert [item["id"] for item in items if "id" in item] == ["rs_1", "fc_a"]


def test_a_cut_answer_is_not_sent() -> None:
    assert sent(user("go"), assistant(reasons(), asks(), incomplete=True), result("a", "r"), user("on")) == [
        says("go\n\non")
    ]


def test_refused_reasoning_is_left_out() -> None:
    history = (user("go"), assistant(reasons(1), asks("a")), result("a", "r"), assistant(reasons(2), asks("b")))
    none = sent(*history, rules=ReplayRules(reasoning=False))
    assert [item.get("id") for item in none] == [None] * 5
    one = sent(*history, rules=ReplayRules(accepts=lambda content: content != "E1"))
    assert [item["id"] for item in one if "id" in item] == ["rs_2", "fc_b"]


# -- whole conversations -------------------------------------------------------------------------------------------

OUTPUTS = {
    "files": ["rs_1", "fc_call_a", "fc_call_b", None, None, "msg_1"],
    "phases": ["rs_2", "msg_2", "rs_1", "fc_call_c", None, "msg_1"],
    "refusal": [None],
    "aloud": ["rs_9", "fc_call_c", None],
}


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("size", [1, 50, 100_000])
def test_a_conversation_goes_back_as_it_came(name: str, size: int) -> None:
    """Only a message without reasoning loses its id, which nothing needs."""
    history, items = [user("go")], list[dict[str, Any]]()
    for path in sorted(WIRE.glob(f"{name}-*.jsonl")):
        lines = path.read_text("utf-8").splitlines()
        data = "".join(f"data: {line}\n\n" for line in lines).encode()
        decoder = ResponsesDecoder(Backend("here"))
        events = [event for at in range(0, len(data), size) for event in decoder.feed(data[at : at + size])]
        answer = record([*events, *decoder.end()])
        items += json.loads(lines[-1])["response"]["output"]
        history += [answer, *(result(call.id, "r") for call in answer.tool_calls)]
    body = sent(*history, user("Thanks."))[1:-1]
    came = {item["id"]: item for item in items}
    for item in body:
        if "id" in item:
            whole = came[item["id"]]
            assert item == {field: whole[field] for field in item}
    ids = [item.get("id") for item in body]
    assert ids[: len(ids) - 1] == OUTPUTS[name][: len(ids) - 1]


def test_an_answer_that_is_cut_by_the_limit_goes_back_as_text() -> None:
    history = (user("go"), assistant(reasons(), Text("Once upon")), user("on"))
    assert sent(*history)[1:3] == [reasoned(), answers("Once upon")]
