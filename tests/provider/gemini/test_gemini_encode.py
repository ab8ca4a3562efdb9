"""Law 1 for Gemini, on the JSON that its library sends, and what becomes of what in a request."""

import asyncio
import json
from copy import deepcopy
from functools import cache
from typing import Any, cast

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doubles.conversation import calls, result, said, user
from doubles.gemini_rules import violations
from yarrow.config.settings import ProviderSettings
from yarrow.message import Block, Image, Message, Opaque, Role, Text, Thinking, ThinkingLevel, ToolCall, ToolSpec
from yarrow.provider.backend_errors import Backend
from yarrow.provider.base import CompletionRequest
from yarrow.provider.base_urls import parse_gemini_address
from yarrow.provider.gemini.httpx_transport import HttpxTransport, new_client
from yarrow.provider.gemini.request import (
    ALLOWED_KEYWORDS,
    GeminiEndpoint,
    GeminiRequest,
    encode_gemini_request,
    reduce_schema,
)
from yarrow.provider.history_repair import (
    CONTINUE_PROMPT,
    HIDDEN_IMAGE,
    HISTORY_START,
    MISSING_RESULT,
    NO_OUTPUT,
    Target,
)

MODEL = "gemini-3-flash"
HERE = Target("here", MODEL)
PNG = Image("image/png", "iVBORw0KGgo=")
UNSIGNED = "skip_thought_signature_validator"
READ = ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}})


@cache
def library() -> tuple[Any, list[dict[str, Any]]]:
    """The library's client, and the bodies that it sent."""
    sent: list[dict[str, Any]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(json.loads(request.content))
        return httpx2.Response(200, content=b'{"candidates":[{"finishReason":"STOP"}]}')

    wire = cast("HttpxTransport", httpx2.MockTransport(answer))
    return new_client(GeminiEndpoint(parse_gemini_address(""), Backend("here", "key")), wire), sent


def body_of(call: GeminiRequest) -> dict[str, Any]:
    """The body that the library sends for a call."""
    client, sent = library()

    async def ask() -> None:
        chunks = await client.aio.models.generate_content_stream(
            model=call.model, contents=call.contents, config=call.config
        )
        async for _ in chunks:
            pass

    asyncio.run(ask())
    return sent.pop()


def body(*messages: Message, target: Target = HERE, configured: ProviderSettings | None = None, **more: Any) -> Any:
    """The body of a request; legal."""
    request = CompletionRequest(model=target.model, messages=messages, **more)
    made = body_of(encode_gemini_request(request, target, configured or ProviderSettings()))
    assert violations(made, target.model) == []
    return made


def sent(*messages: Message, **more: Any) -> list[list[dict[str, Any]]]:
    """The parts of each content."""
    return [content["parts"] for content in body(*messages, **more)["contents"]]


def assistant(*blocks: Block | str, **more: Any) -> Message:
    return said(Role.ASSISTANT, *blocks, **({"provider": "here", "model": MODEL} | more))


def wire_call(name: str = "bash", signature: str = "", **more: Any) -> dict[str, Any]:
    part = {"functionCall": {"name": name, "args": {"command": "ls"}, **more}}
    return part | ({"thoughtSignature": signature} if signature else {})


def wire_result(output: str, name: str = "bash", *, key: str = "output", **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {key: output}, **more}}


# -- the law -------------------------------------------------------------------------------------------------------

TOKENS = ["<think>", '"', "\r\n", "\u2028", "\x00", "\ud83c", " ", "", "{}", "🌍", "x"]
texts = st.lists(st.sampled_from(TOKENS), max_size=4).map("".join)
ids = st.sampled_from(["", " ", "a", "b", "call_1", "call_2", "é", "x" * 60])
OPAQUE = [
    *("", "{", "[]", "null", '{"thoughtSignature":"c2ln"}', '{"thoughtSignature":""}', '{"thoughtSignature":"c"}'),
    *('{"thoughtSignature":"c2ln","length":1}', '{"thoughtSignature":"c2ln","length":-1}', '{"id":"a"}', '{"id":5}'),
    *('{"thoughtSignature":"c2ln","length":99}', '{"thoughtSignature":"-_-_","thought":"t"}', '{"thought":"t"}'),
    *('{"thoughtSignature":"c2ln","thought":""}', '{"id":"b","thoughtSignature":"+/+/"}', '{"signature":"s"}'),
]
opaques = st.sampled_from(OPAQUE)
blocks: st.SearchStrategy[Block] = st.one_of(
    st.builds(Text, texts),
    st.builds(Thinking, texts, opaques),
    st.builds(
        ToolCall,
        ids,
        st.sampled_from(["bash", "", "functions.bash", "x" * 80, "1st", "-"]),
        st.sampled_from(["{}", '{"a":1}', "", "null", '{"a":', "[]", '{"a":"\ud83c"}', ' {"a": 1.50} ']),
        texts,
        opaques,
    ),
    st.builds(
        Image, st.sampled_from(["image/png", "image/gif", ""]), st.sampled_from(["AAAA", "", "A", "-_-_", "+/+/", "é"])
    ),
    st.builds(Opaque, opaques),
)
messages = st.builds(
    Message,
    id=st.just("m"),
    role=st.sampled_from(Role),
    content=st.lists(blocks, max_size=4).map(tuple),
    timestamp=st.just(""),
    tool_call_id=ids,
    tool_name=st.sampled_from(["bash", ""]),
    is_error=st.booleans(),
    incomplete=st.booleans(),
    provider=st.sampled_from(["here", "there"]),
    model=st.sampled_from([MODEL, "gemini-2.5-pro"]),
)
schemas = st.recursive(
    st.sampled_from(
        [
            *({}, True, {"type": "string", "const": "x"}, {"enum": [1, None]}, {"type": ["string", "null"]}, 5),
            *({"type": "string", "format": "uri", "pattern": "x"}, {"format": [1]}, {"required": [{}, "a"]}),
            {"type": "number", "exclusiveMinimum": 0, "minimum": 1, "default": 3},
        ]
    ),
    lambda inner: st.one_of(
        st.fixed_dictionaries(
            {
                "type": st.just("object"),
                "properties": st.dictionaries(st.sampled_from(["const", "a", "$schema"]), inner),
            },
            optional={"additionalProperties": inner, "required": st.just(["a", "z"]), "$defs": st.just({"a": {}})},
        ),
        st.fixed_dictionaries({"type": st.just("array"), "items": inner, "uniqueItems": st.just(True)}),  # type: ignore[arg-type]
        st.fixed_dictionaries({"anyOf": st.lists(inner, max_size=2)}),
    ),
    max_leaves=5,
)
tools = st.lists(st.builds(ToolSpec, st.just("read"), texts, schemas), max_size=1).map(tuple)
requests = st.builds(
    CompletionRequest,
    model=st.sampled_from([MODEL, "gemini-2.5-pro", "gemma-3"]),
    messages=st.lists(messages, min_size=1, max_size=6).map(tuple),
    tools=tools,
    system=texts,
    thinking=st.sampled_from(ThinkingLevel),
    max_tokens=st.sampled_from([-1, 0, 5]),
    temperature=st.sampled_from([None, -1.0, 0.5, 7.0]),
    tool_choice=st.sampled_from(["auto", "none", "required"]),
)


@given(requests, st.booleans())
@settings(max_examples=250, deadline=None)
def test_every_history_becomes_a_valid_request(request: CompletionRequest, sees: bool) -> None:
    if not any(message.text.strip() for message in request.messages):
        request = CompletionRequest(model=request.model, messages=(*request.messages, user("hi")), tools=request.tools)
    target = Target("here", request.model, lambda _: sees)
    call = encode_gemini_request(request, target, ProviderSettings(temperature=1.0))
    assert violations(body_of(call), request.model) == []
    assert encode_gemini_request(request, target, ProviderSettings(temperature=1.0)) == call


def test_the_rules_detect_an_invalid_request() -> None:
    call = encode_gemini_request(CompletionRequest(model=MODEL, messages=(user("hi"),)), HERE, ProviderSettings())
    call.contents.append({"role": "user", "parts": [{"text": " "}]})
    assert len(violations(body_of(call), MODEL)) == 3


# -- histories -----------------------------------------------------------------------------------------------------


def test_user_and_model_alternate() -> None:
    history = (assistant("a"), assistant("b"), user("c"), user("d", PNG), assistant("e"))
    image = {"inlineData": {"mime_type": "image/png", "data": PNG.data}}
    assert sent(*history) == [
        [{"text": HISTORY_START}],
        [{"text": "a"}, {"text": "b"}],
        [{"text": "c"}, {"text": "d"}, image],
        [{"text": "e"}],
        [{"text": CONTINUE_PROMPT}],
    ]


def test_case_P_19_results_share_one_content_in_call_order() -> None:
    history = (
        user("go"),
        assistant(*calls("a", "b", "c")),
        result("c", "third"),
        result("b", "cut", is_error=True),
        user("stop!"),
        result("a"),
    )
    assert sent(*history)[2] == [
        wire_result(NO_OUTPUT),
        wire_result("cut", key="error"),
        wire_result("third"),
        {"text": "stop!"},
    ]


def test_case_P_16_a_call_without_a_result_is_answered() -> None:
    assert sent(user("go"), assistant(*calls("a")), user("on"))[2] == [
        wire_result(MISSING_RESULT, key="error"),
        {"text": "on"},
    ]


def test_case_P_18_blank_text_is_not_sent() -> None:
    request = body(user("go", " \n"), assistant("", *calls("a")), result("a", ""), user(" "), system=" ")
    assert "systemInstruction" not in request
    assert [content["parts"] for content in request["contents"]] == [
        [{"text": "go"}],
        [wire_call(signature=UNSIGNED)],
        [wire_result(NO_OUTPUT)],
    ]


def test_images_of_results_follow_all_results() -> None:
    history = (user("go"), assistant(*calls("a", "b")), result("a", PNG), result("b", "x"))
    first, second, told, image = sent(*history)[2]
    assert (first, second) == (wire_result("(images follow the results)"), wire_result("x"))
    assert told == {"text": "Images in the result of bash:"}
    assert image["inlineData"]["data"] == PNG.data


def test_unsupported_images_become_notes() -> None:
    assert sent(user(Image("image/gif", "AAAA"), Image("image/png", "A"))) == [[{"text": HIDDEN_IMAGE}] * 2]


def test_names_of_calls_and_results_match_and_are_valid() -> None:
    history = (user("go"), assistant(ToolCall("a", "1.x", "{")), result("a", "no", is_error=True))
    assert sent(*history)[1:] == [
        [{"functionCall": {"name": "_1_x", "args": {}}, "thoughtSignature": UNSIGNED}],
        [wire_result("no", "_1_x", key="error")],
    ]


# -- what only the model that said it can read ---------------------------------------------------------------------

SIGNED = ToolCall("fc", "bash", '{"command":"ls"}', opaque='{"thoughtSignature":"c2ln","id":"fc"}')


def test_ids_and_signatures_are_sent_to_their_own_model() -> None:
    history = (user("go"), assistant(SIGNED, *calls("ours")), result("fc", "x"), result("ours", "y"))
    assert sent(*history)[1:] == [
        [wire_call(signature="c2ln", id="fc"), wire_call()],
        [wire_result("x", id="fc"), wire_result("y")],
    ]


@pytest.mark.parametrize("origin", [{"model": "gemini-3-pro"}, {"provider": "there"}])
def test_ids_and_signatures_are_not_sent_to_another_model(origin: dict[str, str]) -> None:
    note = Opaque('{"thoughtSignature":"c2ln","length":1}')
    history = (user("go"), assistant("x", note, SIGNED, **origin), result("fc", "x"))
    assert sent(*history)[1:] == [[{"text": "x"}, wire_call(signature=UNSIGNED)], [wire_result("x")]]


def test_older_models_get_no_signature() -> None:
    target = Target("here", "gemini-2.5-flash")
    assert sent(user("go"), assistant(*calls("a")), result("a", "x"), target=target)[1] == [wire_call()]


def test_signed_text_is_separated_from_the_text_before_it() -> None:
    note = Opaque('{"thoughtSignature":"c2ln","length":3}')
    assert sent(user("go"), assistant("one two", note, " three", note), user("on"))[1] == [
        {"text": "one "},
        {"text": "two", "thoughtSignature": "c2ln"},
        {"text": " th"},
        {"text": "ree", "thoughtSignature": "c2ln"},
    ]


def test_a_lone_signature_and_signed_thinking() -> None:
    alone = Opaque('{"thoughtSignature":"c2ln"}')
    thought = Opaque('{"thoughtSignature":"c2ln","thought":"hm"}')
    assert sent(user("go"), assistant(thought, Thinking("hm"), "x", alone), user("on"))[1] == [
        {"text": "hm", "thought": True, "thoughtSignature": "c2ln"},
        {"text": "x"},
        {"text": "", "thoughtSignature": "c2ln"},
    ]


# -- fields --------------------------------------------------------------------------------------------------------


def test_the_library_adds_nothing() -> None:
    config = encode_gemini_request(
        CompletionRequest(model=MODEL, messages=(user("hi"),)), HERE, ProviderSettings()
    ).config
    assert config == {"automatic_function_calling": {"disable": True}, "automatic_continuation": False}


@pytest.mark.parametrize("level", ThinkingLevel)
def test_thinking_is_not_configured_for_models_without_it(level: ThinkingLevel) -> None:
    made = body(user("hi"), thinking=level)
    assert not made.pop("generationConfig")
    assert made.keys() == {"contents"}


@pytest.mark.parametrize(("choice", "mode"), [("auto", None), ("none", "NONE"), ("required", "ANY")])
def test_tool_choice(choice: str, mode: str | None) -> None:
    made = body(user("hi"), tools=(READ,), tool_choice=choice)
    assert made.get("toolConfig") == (mode and {"functionCallingConfig": {"mode": mode}})
    assert "toolConfig" not in body(user("hi"), tool_choice=choice)


def test_request_values_override_configured_ones() -> None:
    configured = ProviderSettings(max_tokens=9, temperature=0.1, extra_body={"generationConfig": {"topP": 0.5}})
    assert body(user("hi"), configured=configured)["generationConfig"] == {
        "maxOutputTokens": 9,
        "temperature": 0.1,
        "topP": 0.5,
    }
    made = body(user("hi"), configured=configured, max_tokens=5, temperature=0.0)["generationConfig"]
    assert (made["maxOutputTokens"], made["temperature"]) == (5, 0.0)


# -- schemas -------------------------------------------------------------------------------------------------------


def test_case_P_20_unsupported_schema_keywords_are_removed_at_any_depth() -> None:
    count_of: dict[str, Any] = {"type": "integer", "exclusiveMinimum": 0, "minimum": 1, "format": "int32"}
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "additionalProperties": False,
        "required": ["const", "gone"],
        "properties": {
            "const": {"const": "x", "description": "d"},
            "list": {"type": "array", "uniqueItems": True, "items": {"anyOf": [count_of, {"const": 5}]}},
            "kind": {"enum": ["a", "b"], "format": "uri", "default": "a"},
            "mixed": {"enum": ["a", 1]},
            "any": True,
        },
    }
    before = deepcopy(schema)
    made = body(user("hi"), tools=(ToolSpec("t", "d", schema),))
    [declared] = made["tools"][0]["functionDeclarations"]
    assert declared["parameters_json_schema"] == {
        "type": "object",
        "required": ["const"],
        "properties": {
            "const": {"enum": ["x"], "description": "d"},
            "list": {
                "type": "array",
                "items": {"anyOf": [{"type": "integer", "minimum": 1, "format": "int32"}, {}]},
            },
            "kind": {"enum": ["a", "b"]},
            "mixed": {},
            "any": {},
        },
    }
    assert schema == before


def test_a_tool_without_parameters() -> None:
    made = body(user("hi"), tools=(ToolSpec("t", " ", {"type": "object", "properties": {}}),))
    assert made["tools"] == [{"functionDeclarations": [{"name": "t"}]}]


@given(schemas)
@settings(max_examples=200, deadline=None)
def test_reducing_a_schema_is_idempotent(schema: Any) -> None:
    once = reduce_schema(schema)
    assert reduce_schema(once) == once
    assert once.keys() <= ALLOWED_KEYWORDS
