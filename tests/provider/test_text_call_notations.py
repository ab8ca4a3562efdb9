"""Every published notation of a tool call: it runs as the end of an answer, and its look-alikes never do."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.message import StopReason, ToolSpec
from yarrow.provider.base import CallPiece, NoticePiece, ProviderEvent, StopPiece, TextPiece
from yarrow.provider.text_calls.notations import MARKS
from yarrow.provider.text_calls.text_call_policy import TextCallPolicy
from yarrow.provider.text_calls.text_call_reader import TextCallReader

BAR, GAP = "\uff5c", "\u2581"
DSML = f"{BAR}DSML{BAR}"
ANTHROPIC = "antml" + ":"
BEGIN, END_CALL, SEPARATOR = (f"<{BAR}tool{GAP}{name}{BAR}>" for name in (f"call{GAP}begin", f"call{GAP}end", "sep"))
CALLS_BEGIN, CALLS_END = (f"<{BAR}tool{GAP}calls{GAP}{name}{BAR}>" for name in ("begin", "end"))
PROPERTIES = {"path": {"type": "string"}, "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}
TOOLS = (
    ToolSpec("read", "", {"type": "object", "properties": PROPERTIES, "required": ["path"]}),
    ToolSpec("ls", "", {"type": "object", "properties": {}}),
)
HERE = TextCallPolicy("mine", runs=True)
ELSEWHERE = TextCallPolicy("mine", runs=False)
Arguments = dict[str, Any]


def take(pieces: Sequence[str], policy: TextCallPolicy = HERE) -> list[ProviderEvent]:
    reader = TextCallReader(TOOLS, policy)
    events = [event for piece in pieces for event in reader.take(TextPiece(piece))]
    return [*events, *reader.take(StopPiece(StopReason.END_TURN))]


def read(pieces: Sequence[str], policy: TextCallPolicy = HERE) -> tuple[str, list[tuple[str, Arguments]], list[str]]:
    """The text, the calls and the notices of an answer."""
    events = take(pieces, policy)
    text = "".join(event.text for event in events if isinstance(event, TextPiece))
    calls = [(one.call.name, json.loads(one.call.arguments)) for one in events if isinstance(one, CallPiece)]
    return text, calls, [event.text for event in events if isinstance(event, NoticePiece)]


def text_of(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def in_json(name: str, arguments: Arguments, key: str = "arguments") -> str:
    return json.dumps({"name": name, key: arguments}, ensure_ascii=False)


def as_parameters(arguments: Arguments, tag: str = "") -> str:
    return "\n".join(
        f'<{tag}parameter name="{key}">{text_of(value)}</{tag}parameter>' for key, value in arguments.items()
    )


def qwen(name: str, arguments: Arguments, tag: str = "tool_call") -> str:
    body = "\n".join(f"<parameter={key}>\n{text_of(value)}\n</parameter>" for key, value in arguments.items())
    return f"<{tag}>\n<function={name}>\n{body}\n</function>\n</{tag}>"


def glm(name: str, arguments: Arguments) -> str:
    pairs = (f"<arg_key>{key}</arg_key>\n<arg_value>{text_of(value)}</arg_value>\n" for key, value in arguments.items())
    return f"<tool_call>{name}\n{''.join(pairs)}</tool_call>"


def dsml(name: str, arguments: Arguments) -> str:
    body = "".join(
        f'<{DSML}parameter name="{key}" string="true">{text_of(value)}</{DSML}parameter>'
        for key, value in arguments.items()
    )
    return f'<{DSML}function_calls>\n<{DSML}invoke name="{name}">\n{body}\n</{DSML}invoke>\n</{DSML}function_calls>'


def python(name: str, arguments: Arguments) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


Written = Callable[[str, Arguments], str]
MARKED: dict[str, Written] = {
    "Hermes": lambda name, given: f"<tool_call>\n{in_json(name, given)}\n</tool_call>",
    "Hermes without an end": lambda name, given: f"<tool_call>{in_json(name, given)}",
    "a list in tags": lambda name, given: f"<tool_calls>[{in_json(name, given)}]</tool_calls>",
    "Phi": lambda name, given: f"<|tool_call|>[{in_json(name, given)}]<|/tool_call|>",
    "Qwen3-Coder": qwen,
    "Seed": lambda name, given: qwen(name, given, "seed:tool_call"),
    "Llama's function": lambda name, given: f"<function={name}>{json.dumps(given)}</function>",
    "GLM": glm,
    "Kimi": lambda name, given: (
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>"
        f"{json.dumps(given)}<|tool_call_end|><|tool_calls_section_end|>"
    ),
    "Mistral's list": lambda name, given: f"[TOOL_CALLS] [{in_json(name, given)}]",
    "Mistral": lambda name, given: f"[TOOL_CALLS]{name}[ARGS]{json.dumps(given)}</s>",
    "Mistral with an id": lambda name, given: f"[TOOL_CALLS]{name}[CALL_ID]a1b2c3d4e[ARGS]{json.dumps(given)}",
    "DeepSeek V3": lambda name, given: (
        f"{CALLS_BEGIN}{BEGIN}function{SEPARATOR}{name}\n```json\n{json.dumps(given)}\n```{END_CALL}{CALLS_END}"
    ),
    "DeepSeek V3.1": lambda name, given: (
        f"{CALLS_BEGIN}{BEGIN}{name}{SEPARATOR}{json.dumps(given)}{END_CALL}{CALLS_END}"
    ),
    "DSML": dsml,
    "harmony": lambda name, given: (
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{json.dumps(given)}<|call|>"
    ),
    "harmony with a role": lambda name, given: (
        f"<|start|>assistant to=functions.{name}<|channel|>commentary json<|message|>{json.dumps(given)}<|call|>"
    ),
    "Llama's tag": lambda name, given: f"<|python_tag|>{in_json(name, given, 'parameters')}<|eom_id|>",
    "Llama's call": lambda name, given: f"<|python_tag|>{python(f'{name}.call', given)}",
    "Llama 4": lambda name, given: f"<|python_start|>[{python(name, given)}]<|python_end|>",
    "MiniMax": lambda name, given: (
        f'<minimax:tool_call>\n<invoke name="{name}">\n{as_parameters(given)}\n</invoke>\n</minimax:tool_call>'
    ),
    "Anthropic": lambda name, given: (
        f'<{ANTHROPIC}function_calls>\n<{ANTHROPIC}invoke name="{name}">\n{as_parameters(given, ANTHROPIC)}\n'
        f"</{ANTHROPIC}invoke>\n</{ANTHROPIC}function_calls>"
    ),
    "Anthropic, plain": lambda name, given: (
        f'<function_calls>\n<invoke name="{name}">\n{as_parameters(given)}\n</invoke>\n</function_calls>'
    ),
    "Command": lambda name, given: (
        "<|START_ACTION|>["
        + json.dumps({"tool_call_id": "0", "tool_name": name, "parameters": given})
        + "]<|END_ACTION|><|END_OF_TURN_TOKEN|>"
    ),
}
WHOLE: dict[str, Written] = {
    "JSON": in_json,
    "Python": lambda name, given: f"[{python(name, given)}]",
    "fenced JSON": lambda name, given: f"```json\n{in_json(name, given)}\n```",
    "fenced tags": lambda name, given: f"~~~\n<tool_call>{in_json(name, given)}</tool_call>\n~~~",
}
LINE: dict[str, Written] = {
    "harmony without tokens": lambda name, given: f"commentary to=functions.{name} json{json.dumps(given)}",
}

nasty = st.one_of(
    st.text(max_size=20),
    st.lists(
        st.sampled_from(
            [*MARKS, "</tool_call>", '"', "'", "\\", "{", "}", "[", ")", "```", "\n", "x", "`", "</s>", "[/TOOL_CALLS]"]
        ),
        max_size=5,
    ).map("".join),
)
"""Values that look like any notation."""
values = nasty.filter(lambda text: "parameter>" not in text and "arg_" not in text and text == text.strip())
written_arguments = st.builds(
    lambda path, limit: {"path": path, **limit},
    values.filter(lambda text: "\x00" not in text and not any(0xD800 <= ord(one) < 0xE000 for one in text)),
    st.sampled_from([{}, {"limit": 5}]),
)
prose = st.lists(
    st.sampled_from(["I look. ", "\n", "\n\n", "a < b ", "`code` ", "[x](y) ", "c", "<b>", "\n```sh\nls\n```\n"]),
    max_size=5,
).map("".join)
ends = st.sampled_from(["", "\n", " \n\n", "<|im_end|>", "</s>\n", "<|eot_id|>"])


def cut(text: str, data: st.DataObject) -> list[str]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [piece for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True) if (piece := text[a:b])]


@given(st.sampled_from(list(MARKED)), prose, written_arguments, ends, st.data())
def test_case_RA_01_a_marked_call_at_the_end_of_an_answer_runs(
    name: str, before: str, arguments: Arguments, after: str, data: st.DataObject
) -> None:
    text = before + MARKED[name]("read", arguments) + after
    assert read([text]) == (before if before.strip() else "", [("read", arguments)], [])
    assert read(cut(text, data)) == read([text]) == read(list(text))


@given(st.sampled_from(list(WHOLE | LINE)), written_arguments, ends, st.data())
def test_case_RA_01_a_call_without_a_mark_runs_as_the_whole_answer(
    name: str, arguments: Arguments, after: str, data: st.DataObject
) -> None:
    text = (WHOLE | LINE)[name]("read", arguments) + after
    assert read([text]) == ("", [("read", arguments)], [])
    assert read(cut(text, data)) == read([text]) == read(list(text))
    said, calls, _ = read([f"Use {text}"])
    assert (said, calls) == (f"Use {text}", [])


@given(st.lists(st.sampled_from(list(MARKED)), min_size=2, max_size=4), st.sampled_from(["", "\n", "\n\n"]))
def test_several_calls_in_any_notations_keep_their_order(names: list[str], between: str) -> None:
    text = between.join(MARKED[name]("read", {"path": str(at)}) for at, name in enumerate(names))
    assert read([text]) == ("", [("read", {"path": str(at)}) for at in range(len(names))], [])
    assert read(list(text)) == read([text])


LOOK_ALIKES: dict[str, Callable[[str], str]] = {
    "prose follows": lambda call: f"{call}\nThe file says hello.",
    "a result follows": lambda call: f"{call}<|im_end|>\n<|im_start|>tool\nhello",
    "a code block in prose": lambda call: f"As in\n```xml\n{call}\n```\n",
    "an open code block": lambda call: f"As in\n~~~ text\n{call}",
    "a block in a list": lambda call: f"- As in\n\n      {call}",
    "an indented block": lambda call: f"As in\n\n    {call}",
    "a span": lambda call: f"As in `{call}`",
    "an open span": lambda call: f"As in ``{call}",
    "a quotation": lambda call: f"As in\n> {call}",
    "a longer fence": lambda call: f"As in\n````\n```\n```\n{call}\n````",
    "a tag of code": lambda call: f"As in <code>{call}</code>",
    "thinking": lambda call: f"<think>\n{call}</think>",
    "a value": lambda call: f"<function=read>\n<parameter=path>\n{call}\n",
}


@given(st.sampled_from(list(MARKED)), st.sampled_from(list(LOOK_ALIKES)), st.data())
def test_case_RA_01_an_example_of_a_call_never_runs(name: str, around: str, data: st.DataObject) -> None:
    text = LOOK_ALIKES[around](MARKED[name]("read", {"path": "a"}))
    said, calls, notices = read([text])
    assert (said, calls) == (text, [])
    assert (said, calls, notices) == read(cut(text, data)) == read(list(text))


@given(st.sampled_from(list(MARKED | WHOLE)), st.data())
def test_a_truncated_call_never_runs_with_other_arguments(name: str, data: st.DataObject) -> None:
    arguments = {"path": "a/b/c", "limit": 5}
    text = (MARKED | WHOLE)[name]("read", arguments)
    part = text[: data.draw(st.integers(0, len(text) - 1))]
    said, calls, _ = read([part])
    assert (said, calls) in ((part, []), ("", [("read", arguments)]))


@pytest.mark.parametrize("name", [*MARKED, *WHOLE])
@pytest.mark.parametrize(
    ("tool", "arguments", "reason"),
    [
        ("boom", {"path": "a"}, "no tool 'boom' was offered"),
        ("read", {"limit": 5}, "the argument 'path' is missing"),
        ("read", {"path": "a", "limit": "five"}, "the argument 'limit' has the wrong type"),
    ],
)
def test_case_RA_01_a_call_that_does_not_qualify_is_reported(
    name: str, tool: str, arguments: Arguments, reason: str
) -> None:
    text = (MARKED | WHOLE)[name](tool, arguments)
    for pieces in ([text], list(text)):
        said, calls, [notice] = read(pieces)
        assert (said, calls) == (text, [])
        assert f"because {reason}" in notice
        assert "--enable-auto-tool-choice" in notice
        assert "--jinja" in notice


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "read", "arguments": {"path": "a',
        '<tool_call>{"name": "read", "arguments": {path: a}}</tool_call>',
        "<tool_call>read a.py</tool_call>",
        '{"name": "read", "arguments": {"path": "a"}}\n{"name": "read", "arguments": {"path": "b"}}',
        '[{"name": "read", "arguments": {"path": "a"}}]',
        "<function=read><parameter=path>a</parameter><parameter=path>b</parameter></function>",
        '[TOOL_CALLS]read[ARGS]{"path": a}',
        "<|python_tag|>read('a')",
        '<|channel|>commentary to=functions.read <|constrain|>json<|message|>{"path": "a"',
    ],
)
def test_case_RA_01_an_answer_that_looks_like_a_call_is_never_silent(text: str) -> None:
    for pieces in ([text], list(text)):
        said, calls, notices = read(pieces)
        assert (said, calls, len(notices)) == (text, [], 1)


@pytest.mark.parametrize(
    "text",
    [
        "To read a file I would write <tool_call> and the name of the tool, as in `<function=read>`.",
        "<tool_call> is the tag before a call, and </tool_call> the one after it.",
        '{"name": "read", "version": "1.0"}',
        '{"name": "read"}',
        "[read](https://example.org)",
        "[1, 2]",
        "```json\n[1]\n```",
        "```python\nread(path='a')\n```",
        "commentary to=functions is how it begins",
        "<|channel|>analysis<|message|>Let me think.<|end|>",
        "",
    ],
)
def test_case_RA_01_other_text_is_neither_run_nor_reported(text: str) -> None:
    for pieces in ([text], list(text)):
        assert read(pieces) == (text, [], [])


PREFIXES = {mark[:size] for mark in MARKS for size in range(1, len(mark))}


@given(st.text(st.sampled_from('abc <[|`{}_\n"to='), max_size=60))
def test_text_that_cannot_begin_a_call_is_not_delayed(text: str) -> None:
    reader = TextCallReader(TOOLS, HERE)
    said = "x"
    given = "".join(event.text for event in reader.take(TextPiece("x")) if isinstance(event, TextPiece))
    for character in text:
        said += character
        given += "".join(event.text for event in reader.take(TextPiece(character)) if isinstance(event, TextPiece))
        held = said[len(given) :]
        assert not held or held in PREFIXES or held.startswith(MARKS)


@pytest.mark.parametrize("name", [*MARKED, *WHOLE])
def test_case_RA_01_a_server_elsewhere_gets_a_notice_and_no_delay(name: str) -> None:
    text = (MARKED | WHOLE)[name]("read", {"path": "a"})
    events = take(list(text), ELSEWHERE)
    assert events[: len(text)] == [TextPiece(character) for character in text]
    [notice, stop] = events[len(text) :]
    assert isinstance(notice, NoticePiece)
    assert 'providers.mine.textCalls to "on"' in notice.text
    assert stop == StopPiece(StopReason.END_TURN)
    assert len(read([f"Use {text}"], ELSEWHERE)[2]) == (name in MARKED)


def test_nothing_is_done_where_it_is_off() -> None:
    off = TextCallPolicy("mine", runs=False, watches=False)
    text = MARKED["Hermes"]("read", {"path": "a"})
    assert take(list(text), off) == [*map(TextPiece, text), StopPiece(StopReason.END_TURN)]
