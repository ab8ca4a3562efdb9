"""Law 1, once for all formats: whatever history is stored, what each adapter sends of it is legal there."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from doubles import gemini_rules, messages_rules, ollama_rules, responses_rules
from doubles.ollama_server import shown
from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.message import Block, Image, Message, Opaque, Role, Text, Thinking, ThinkingLevel, ToolCall, ToolSpec
from yarrow.provider import chat_request_rules as chat_rules
from yarrow.provider import encoded_history_cache
from yarrow.provider.base import CompletionRequest, Provider
from yarrow.provider.gemini.adapter import GeminiProvider
from yarrow.provider.history_repair import MAX_DEPTH
from yarrow.provider.http.client import HttpClient, HttpRequest, HttpResponse
from yarrow.provider.http.parser import ResponseHead
from yarrow.provider.llamacpp.adapter import LlamaCppProvider
from yarrow.provider.messages.adapter import MessagesProvider
from yarrow.provider.ollama.adapter import OllamaProvider
from yarrow.provider.openai.adapter import OpenAiProvider
from yarrow.provider.responses.adapter import ResponsesProvider

Body = dict[str, Any]
HERE = "here"
MARK = b',"cache_control":{"type":"ephemeral"}'

# -- what an adapter sends -----------------------------------------------------------------------------------------


class Recorder(HttpClient):
    """Sends nothing: tells what a model can do where that is asked, and keeps what would have been the prompt."""

    def __init__(self, capabilities: Sequence[str]) -> None:
        super().__init__()
        self.prompts: list[bytes] = []
        self._shown = msgspec.json.encode(shown(capabilities))

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncGenerator[HttpResponse]:
        if request.url.endswith("/api/show"):
            yield _answer(self._shown)
        elif request.method == "GET":
            yield _answer(b'{"models": []}')
        else:
            self.prompts.append(request.body)
            raise ProviderError(Code.UNREACHABLE, "recorded")


def _answer(body: bytes) -> HttpResponse:
    pieces = [body]

    async def receive() -> bytes:
        return pieces.pop() if pieces else b""

    return HttpResponse(ResponseHead(200, "OK", {"content-type": "application/json"}), receive)


class Format(NamedTuple):
    """A kind of backend: its adapter, its rules, the models that differ in what they take, and where it talks."""

    adapter: Callable[..., Provider]
    problems: Callable[[Body, str], list[str]]
    models: Sequence[str]
    said: str = "messages"
    url: str = "http://localhost:1"
    capabilities: Sequence[Sequence[str]] = ((),)


def sent(form: Format, request: CompletionRequest, capabilities: Sequence[str] = (), **configured: Any) -> bytes:
    """The prompt as the adapter of a format puts it on the wire, the same each time; the request stays as it was."""
    before = deepcopy(request)
    first, second = prompts(form, [request, request], capabilities, **configured)
    assert first == second
    assert request == before
    return first


def prompts(
    form: Format, requests: Sequence[CompletionRequest], capabilities: Sequence[str] = (), **configured: Any
) -> list[bytes]:
    """The prompts as one provider puts them on the wire, one after the other."""

    async def ask() -> list[bytes]:
        http = Recorder(capabilities)
        given_ = ProviderSettings(base_url=form.url, **configured)
        provider = form.adapter(HERE, requests[0].model, settings=given_, key="", http=http)
        for request in requests:
            try:
                async for _ in provider.stream(request):
                    raise AssertionError("nothing was answered")
            except ProviderError as error:
                if not error.message.startswith("recorded"):
                    raise
        return http.prompts

    return asyncio.run(ask()) if requests else []


def _of_chat(body: Body, _: str) -> list[str]:
    return chat_rules.violations(body)


def _of_messages(body: Body, model: str) -> list[str]:
    """The rules of the format, and what its models are known to refuse."""
    found, kind = messages_rules.violations(body), body.get("thinking", {}).get("type")
    if model.startswith("claude-fable"):
        found += [f"{name}: not supported" for name in ("temperature", "top_p", "top_k") if name in body]
        found += ["tool_choice: cannot be forced"] if body.get("tool_choice", {}).get("type") == "any" else []
    refused = {
        "claude-fable-5-1": ["enabled"],
        "claude-sonnet-4-5": ["adaptive"],
        "claude-3-5": ["enabled", "adaptive"],
    }
    return found + ([f"thinking.type: {kind} is not supported"] if kind in refused.get(model, []) else [])


def _of_responses(body: Body, _: str) -> list[str]:
    return responses_rules.violations(body)


def _of_openai_responses(body: Body, _: str) -> list[str]:
    return responses_rules.violations(body, is_vendor=True)


def _of_ollama(body: Body, _: str) -> list[str]:
    return ollama_rules.violations(body)


FORMATS = {
    "openai": Format(OpenAiProvider, _of_chat, ("m", "gpt-5.1")),
    "openai-hosted": Format(OpenAiProvider, _of_chat, ("gpt-5.1", "gpt-4.1"), url=""),
    "deepseek": Format(OpenAiProvider, _of_chat, ("m",), url="https://api.deepseek.com/v1"),
    "llamacpp": Format(LlamaCppProvider, _of_chat, ("m",)),
    "messages": Format(
        MessagesProvider, _of_messages, ("m", "claude-sonnet-4-5", "claude-opus-4-6", "claude-fable-5-1", "claude-3-5")
    ),
    "responses": Format(ResponsesProvider, _of_responses, ("m", "gpt-5.1"), said="input"),
    "responses-hosted": Format(
        ResponsesProvider, _of_openai_responses, ("gpt-5.1", "o3", "gpt-4.1"), said="input", url=""
    ),
    "ollama": Format(
        OllamaProvider,
        _of_ollama,
        ("m", "gpt-oss"),
        capabilities=((), ("tools",), ("thinking", "vision"), ("tools", "vision", "thinking")),
    ),
    "gemini": Format(
        GeminiProvider, gemini_rules.violations, ("gemini-3-flash", "gemini-2.5-pro", "gemma-3"), said="contents"
    ),
}
MODELS = sorted({model for form in FORMATS.values() for model in form.models})

# -- any stored history --------------------------------------------------------------------------------------------

NASTY = [
    *("<think>", "</think>", "<tool_call>", "</untrusted_input>", '"', "\\", "\r\n", "\u2028", "\x00"),
    *(
        "\x85",
        "\ud83c",
        "\udf0d",
        "\ufeff",
        "🌍",
        "{}",
        "data: [DONE]",
        " ",
        "\n",
        "\t",
        "",
        "x",
        "\u200b",
        "\u00a0",
        "long " * 2_000,
    ),
]
texts = st.lists(st.sampled_from(NASTY), max_size=4).map("".join)
IDS = ["", " ", "a", "b", "call_0", "call_1", "call_2", "toolu_1", "x.y", "x_y", "é", "\ud83c", "a" * 40, "a" * 71]
ids = st.sampled_from(IDS)
NAMES = ["bash", "read", "", " ", "functions.bash", "1st", "-", "ä b", "x" * 80, "<tool_call>", "\ud83c"]
names = st.sampled_from(NAMES)
arguments = st.sampled_from(
    [
        *("{}", '{"command":"ls"}', ' {"n": 1.50, "big": 1e999} ', '{"a":{"b":[null,"\\u2028"]}}', '{"a":1,"a":2}'),
        *("", "null", "[]", '"{}"', '{"command":"l', "{} {}", '{"a":"\ud83c"}', '{"a":"\\ud83c"}', "{" * 3_000),
        *('{"a":NaN}', '{"a":123456789012345678901234567890}', '{"a":' + "[" * 1_500 + "]" * 1_500 + "}"),
    ]
)
OPAQUE = [
    *("", "{", "[]", "null", "5", "{}", '{"field":"reasoning_content"}', '{"field":"thinking"}', '{"field":"role"}'),
    *('{"field":"tool_calls"}', '{"reasoning_details":[{"type":"reasoning.text","text":"t"}]}'),
    *('{"reasoning_details":5}', '{"reasoning_details":[]}', '{"signature":"c2ln"}', '{"signature":""}'),
    *('{"signature":5}', '{"signature":" "}', '{"signature":"\\ud83c"}', '{"type":"apart"}', '{"type":"text"}'),
    *('{"type":"redacted_thinking","data":"ZW5j"}', '{"type":"redacted_thinking","data":""}', '{"id":"a"}'),
    *('{"type":"thinking","thinking":"","signature":"c2ln"}', '{"thoughtSignature":"c2ln"}', '{"id":"call_1"}'),
    *('{"thoughtSignature":"c2ln","length":1}', '{"thoughtSignature":"c2ln","length":-3}', '{"id":5}'),
    *('{"thoughtSignature":"c2ln","thought":"t"}', '{"thoughtSignature":"c"}'),
    '{"thoughtSignature":"c2ln","length":9}',
    *('{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"ZW5j"}', '{"type":"reasoning","id":"rs_2"}'),
    *('{"type":"reasoning","id":"a.b","encrypted_content":"ZW5j","status":null}', '{"type":"message","id":"msg_1"}'),
    *('{"type":"reasoning","content":[{"type":"reasoning_text","text":"t"}]}', '{"type":"message","id":5,"phase":"x"}'),
    *('{"type":"reasoning","id":"rs_3","summary":[5],"encrypted_content":" "}', '{"id":"fc_1"}', '{"id":"fc_\u0000"}'),
    '{"type":"message","id":"msg_2","phase":"commentary"}',
]
opaques = st.sampled_from(OPAQUE)
MEDIA = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml", "IMAGE/PNG", "text/html", ""]
DATA = ["iVBORw0KGgo=", "AAAA", "", "A", "AAA", "-_-_", "+/+/", "é", "AA\nAA", "data:image/png;base64,AAAA"]
images = st.builds(Image, st.sampled_from(MEDIA), st.sampled_from(DATA))
calls = st.builds(ToolCall, ids, names, arguments, texts, opaques)
blocks: st.SearchStrategy[Block] = st.one_of(
    st.builds(Text, texts, opaques), st.builds(Thinking, texts, opaques), calls, images, st.builds(Opaque, opaques)
)
messages = st.builds(
    Message,
    id=st.just("m"),
    role=st.sampled_from(Role),
    content=st.lists(blocks, max_size=5).map(tuple),
    timestamp=st.just(""),
    tool_call_id=ids,
    tool_name=names,
    is_error=st.booleans(),
    incomplete=st.sampled_from([False, False, False, True]),
    provider=st.sampled_from([HERE, HERE, "there", ""]),
    model=st.sampled_from([*MODELS, "", "another"]),
)


def said(role: Role, *content: Block, **more: Any) -> Message:
    return Message(id="m", role=role, content=content, timestamp="", **more)


@st.composite
def exchanges(draw: st.DrawFn, model: str) -> list[Message]:
    """A prompt, an answer of the model with thinking and calls, and their results: all of them, or what is left."""
    thoughts = draw(st.lists(st.one_of(st.builds(Thinking, texts, opaques), st.builds(Opaque, opaques)), max_size=2))
    asked = draw(st.lists(calls, min_size=1, max_size=3))
    answer = said(Role.ASSISTANT, *thoughts, Text(draw(texts)), *asked, provider=HERE, model=model)
    results = [said(Role.TOOL, Text(draw(texts)), tool_call_id=call.id, tool_name=call.name) for call in asked]
    fate = draw(st.sampled_from(["whole", "whole", "shuffled", "aborted", "twice", "cut"]))
    if fate == "shuffled":
        results = draw(st.permutations(results))
    elif fate == "aborted":
        results = results[1:]
    elif fate == "twice":
        results += results[:1]
    elif fate == "cut":
        answer = replace(answer, incomplete=True)
    return [said(Role.USER, Text(draw(texts))), answer, *results]


@st.composite
def histories(draw: st.DrawFn, model: str) -> tuple[Message, ...]:
    """Anything in any order, exchanges that were nearly right among it, behind a summary or without one."""
    pieces = draw(st.lists(st.one_of(messages.map(lambda one: [one]), exchanges(model)), max_size=6))
    summary = [said(Role.USER, Text("A summary of the conversation so far."))] if draw(st.booleans()) else []
    return (*summary, *(message for piece in pieces for message in piece))


OBJECT = {"type": "object"}
WILD = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "mode": {"const": "fast"},
        "any": True,
        "nothing": False,
        "at": {"type": ["string", "null"], "format": "uri", "pattern": "^x", "default": ""},
        "list": {"type": "array", "uniqueItems": True, "items": {"type": "integer", "exclusiveMinimum": 0}},
        "one": {"anyOf": [{"$ref": "#/$defs/a"}, {"enum": [1, None, "x"]}, True]},
        "const": {"type": "object", "properties": {}, "patternProperties": {"^x": {}}},
    },
    "required": ["mode", "gone"],
    "$defs": {"a": {"type": "object", "properties": {"b": False}, "not": {}}},
}
TOOLS = (
    ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}),
    ToolSpec("bash", " ", OBJECT),
    ToolSpec("x-1_Y", "</tool_call> \ud83c", WILD),
)


@st.composite
def requests(draw: st.DrawFn, form: Format) -> CompletionRequest:
    model = draw(st.sampled_from(form.models))
    return CompletionRequest(
        model=model,
        messages=draw(histories(model)),
        tools=tuple(draw(st.lists(st.sampled_from(TOOLS), unique_by=lambda tool: tool.name))),
        system=draw(texts),
        thinking=draw(st.sampled_from(ThinkingLevel)),
        max_tokens=draw(st.sampled_from([0, 1, 1_025, 50_000])),
        temperature=draw(st.sampled_from([None, 0.0, 1.0, 2.0])),
        tool_choice=draw(st.sampled_from(["auto", "none", "required"])),
    )


def is_refused(form: Format, request: CompletionRequest) -> bool:
    """True if the adapter rejects it by design: a new image of the user for a model without images."""
    whole = [message for message in request.messages if not message.incomplete]
    return form.adapter is LlamaCppProvider and bool(whole) and whole[-1].role is Role.USER and bool(whole[-1].images)


# -- the law -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=150)
@given(data=st.data())
def test_law_1_any_history_becomes_a_valid_request(name: str, data: st.DataObject) -> None:
    form = FORMATS[name]
    request = data.draw(requests(form))
    if is_refused(form, request):
        request = replace(request, messages=(*request.messages, said(Role.USER, Text("Without the image, then."))))
    body = json.loads(sent(form, request, data.draw(st.sampled_from(form.capabilities))))
    assert form.problems(body, request.model) == []


@pytest.mark.parametrize("name", FORMATS)
def test_law_1_holds_for_every_form_of_opaque_data(name: str) -> None:
    """Markers of the requested model in every position; each kind of thinking encounters them."""
    form = FORMATS[name]
    for opaque in OPAQUE:
        thoughts = (Thinking("hm", opaque), Text("I look.", opaque), Opaque(opaque))
        for model in form.models:
            answer = said(Role.ASSISTANT, *thoughts, ToolCall("a", "read", opaque=opaque), provider=HERE, model=model)
            result = said(Role.TOOL, Text("text"), tool_call_id="a", tool_name="read")
            level = ThinkingLevel.HIGH if opaque.endswith("}") else ThinkingLevel.OFF
            request = CompletionRequest(model=model, messages=(answer, result), thinking=level, tools=TOOLS)
            assert form.problems(json.loads(sent(form, request, form.capabilities[-1])), model) == [], opaque


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=40)
@given(data=st.data())
def test_law_1_a_provider_that_knows_a_history_sends_what_any_other_sends(name: str, data: st.DataObject) -> None:
    """Earlier requests had the beginning, the whole, or another end of the same beginning."""
    form = FORMATS[name]
    request = replace(data.draw(requests(form)), tools=TOOLS)
    history = (*request.messages, *(message for _ in range(3) for message in data.draw(exchanges(request.model))))
    other = data.draw(histories(request.model))
    able = data.draw(st.sampled_from(form.capabilities))
    unbound = data.draw(st.sampled_from([0, 0, 3]))
    asked: list[CompletionRequest] = []
    for _ in range(4):
        begun = history[: data.draw(st.integers(0, len(history)))]
        end = data.draw(st.sampled_from([(), (), other]))
        one = replace(request, messages=(*begun, *end), unbound=min(unbound, len(begun)))
        asked += [] if is_refused(form, one) else [one]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoded_history_cache, "MIN_MESSAGES", 1)
        known = prompts(form, asked, able)
        assert known == [prompts(form, [one], able)[0] for one in asked]
    assert known == [prompts(form, [one], able)[0] for one in asked]


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=60)
@given(data=st.data())
def test_law_1_earlier_requests_are_prefixes_of_later_ones(name: str, data: st.DataObject) -> None:
    """Else no backend could reuse its cache. The last message may grow, and a mark of the cache may move on."""
    form = FORMATS[name]
    request = data.draw(requests(form))
    able = data.draw(st.sampled_from(form.capabilities))
    after = [data.draw(exchanges(request.model)) for _ in range(2)]
    more = [said(Role.USER, Text("And now?")), *after[0], *after[1]]
    if is_refused(form, request):
        request = replace(request, messages=(*request.messages, said(Role.ASSISTANT, Text("I cannot see it."))))
    short = pieces(form, sent(form, replace(request, tools=TOOLS), able))
    long = pieces(form, sent(form, replace(request, tools=TOOLS, messages=(*request.messages, *more)), able))
    assert long[: len(short) - 1] == short[:-1]


@pytest.mark.parametrize("name", FORMATS)
def test_a_filled_in_id_is_stable_if_a_later_call_has_the_same(name: str) -> None:
    form = FORMATS[name]
    turns = [
        (said(Role.USER, Text("go")), said(Role.ASSISTANT, ToolCall(call_id, "read"))) for call_id in ("", "call_1")
    ]
    end = said(Role.USER, Text("end"))
    short = pieces(form, sent(form, CompletionRequest(model="m", messages=(*turns[0], end), tools=TOOLS)))
    long = pieces(form, sent(form, CompletionRequest(model="m", messages=(*turns[0], *turns[1], end), tools=TOOLS)))
    assert long[: len(short) - 1] == short[:-1]


def pieces(form: Format, body: bytes) -> list[bytes]:
    """The bytes of what leads a conversation, and of each message."""
    fields = msgspec.json.decode(body.replace(MARK, b""), type=dict[str, msgspec.Raw])
    head = [bytes(fields.get(name, msgspec.Raw())) for name in ("system", "systemInstruction", "tools")]
    return [*head, *map(bytes, msgspec.json.decode(fields[form.said], type=list[msgspec.Raw]))]


# -- the rules are strict ------------------------------------------------------------------------------------------

ORDINARY = CompletionRequest(
    model="m",
    messages=(
        said(Role.USER, Text("hi"), Image("image/png", "iVBORw0KGgo=")),
        said(Role.ASSISTANT, Text("I look."), ToolCall("a", "read", '{"path":"x"}'), provider=HERE, model="m"),
        said(Role.TOOL, Text("text"), tool_call_id="a", tool_name="read"),
    ),
    tools=TOOLS[:1],
    system="Be brief.",
    thinking=ThinkingLevel.HIGH,
    max_tokens=100,
)
DEEP = json.loads("[" * 101 + "]" * 101)
UNKNOWN = [
    ("openai", "", "is no field of a request"),
    ("openai", "messages.1", "is no field of it"),
    ("openai", "messages.2", "is no field of it"),
    ("openai", "messages.3", "is no field of it"),
    ("openai", "messages.2.tool_calls.0", "is no field of a call"),
    ("openai", "messages.2.tool_calls.0.function", "is no field of a call"),
    ("ollama", "", "no field of a request"),
    ("ollama", "messages.1", "no field of a message"),
    ("messages", "", "Extra inputs"),
    ("messages", "messages.0", "role"),
    ("messages", "messages.0.content.0", "Extra inputs"),
    ("messages", "messages.0.content.1.source", "Extra inputs"),
    ("messages", "messages.1.content.1", "Extra inputs"),
    ("messages", "messages.2.content.0", "Extra inputs"),
    ("messages", "tools.0", "Extra inputs"),
    ("responses", "", "Unknown parameter"),
    ("responses", "reasoning", "Unknown parameter"),
    ("responses", "input.0", "Unknown parameter"),
    ("responses", "input.0.content.0", "Unknown parameter"),
    ("responses", "input.0.content.1", "Unknown parameter"),
    ("responses", "input.1", "Unknown parameter"),
    ("responses", "input.2", "Unknown parameter"),
    ("responses", "input.3", "Unknown parameter"),
    ("responses", "tools.0", "Unknown parameter"),
    ("gemini", "", "Cannot find field"),
    ("gemini", "generationConfig", "Cannot find field"),
    ("gemini", "contents.0", "Cannot find field"),
    ("gemini", "contents.0.parts.0", "one of its kinds"),
    ("gemini", "contents.0.parts.1.inlineData", "Cannot find field"),
    ("gemini", "contents.1.parts.1.functionCall", "Cannot find field"),
    ("gemini", "contents.2.parts.0.functionResponse", "Cannot find field"),
    ("gemini", "tools.0.functionDeclarations.0", "Cannot find field"),
]
REFUSED: list[tuple[str, str, object, str]] = [
    *((name, f"{place}.opaque".lstrip("."), "o", words) for name, place, words in UNKNOWN),
    ("openai", "reasoning_effort", "huge", "reasoning_effort 'huge'"),
    ("openai", "stream_options", True, "stream_options is no object"),
    ("openai", "chat_template_kwargs", "x", "chat_template_kwargs is no object"),
    ("openai", "messages.2.reasoning_content", None, "reasoning_content is no text"),
    ("openai", "messages.2.reasoning_details", [], "reasoning_details is not a list"),
    ("openai", "messages.1.reasoning", "hm", "a user message has reasoning"),
    ("ollama", "tools.0.function.parameters.type", "string", "type object"),
    ("ollama", "tools.0.function.parameters.required", "path", "property required"),
    ("ollama", "tools.0.function.parameters.properties.path.type", 5, "property type"),
    ("ollama", "tools.0.function.parameters.properties.path.enum", {}, "property enum"),
    ("ollama", "tools.0.function.parameters.properties.path.anyOf", [True], "property anyOf"),
    ("ollama", "tools.0.function.parameters.$defs", {"a": True}, "property a"),
    ("messages", "thinking", {"type": "disabled", "display": "summarized"}, ""),
    ("messages", "thinking", {"type": "disabled", "opaque": "o"}, "thinking.opaque: Extra"),
    ("messages", "tool_choice", {"type": "auto", "mode": "x"}, "tool_choice.mode: Extra"),
    ("messages", "output_config", {"effort": "low", "mode": "x"}, "output_config.mode: Extra"),
    ("gemini", "contents.1.parts.1.functionCall.args.deep", DEEP, "too deep"),
    ("gemini", "toolConfig", {"functionCallingConfig": {"mode": "VALIDATED"}}, ""),
]


@pytest.mark.parametrize(("name", "path", "value", "words"), REFUSED)
def test_requests_that_a_strict_server_rejects(name: str, path: str, value: object, words: str) -> None:
    """One thing put into a body that is legal; without words it stays legal."""
    form = FORMATS[name]
    body = json.loads(sent(form, ORDINARY, ("tools", "vision", "thinking")))
    assert form.problems(body, "m") == []
    *parents, last = path.split(".")
    place: Any = body
    for step in parents:
        place = place[int(step)] if step.isdecimal() else place[step]
    place[last] = value
    problems = form.problems(body, "m")
    assert any(words in problem for problem in problems) if words else problems == [], problems


@pytest.mark.parametrize("name", FORMATS)
def test_deeply_nested_arguments_do_not_end_a_session(name: str) -> None:
    """A model can write them; they are answered with an error, and sent back as none at all."""
    for depth, kept in ((MAX_DEPTH, True), (MAX_DEPTH + 1, False), (5_000, False)):
        written = '{"a":' * (depth - 1) + '{"b":"{[{["}' + "}" * (depth - 1)
        call = ToolCall("a", "read", written)
        history = (*ORDINARY.messages[:1], said(Role.ASSISTANT, call), *ORDINARY.messages[2:])
        body = sent(FORMATS[name], replace(ORDINARY, messages=history), ("tools", "vision", "thinking"))
        assert FORMATS[name].problems(json.loads(body), "m") == []
        assert (b'{"b":"{[{["}' in body.replace(b"\\", b"").replace(b" ", b"")) is kept
