"""Text that is a tool call becomes one; whatever is doubtful stays text, and nothing gets lost."""

import json
from collections.abc import AsyncGenerator, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.errors import Code, ProviderError
from yarrow.message import StopReason, ToolCall, ToolSpec, Usage
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
from yarrow.provider.text_calls import possible_call
from yarrow.provider.text_calls.possible_call import MAX_BLANK_CHARACTERS
from yarrow.provider.text_calls.text_call_policy import TextCallPolicy
from yarrow.provider.text_calls.text_call_reader import TextCallReader, extract_text_calls

OFFERED = ("read", "ls")
LOCAL = TextCallPolicy("mine", runs=True)
END = StopPiece(StopReason.END_TURN)
READ = '{"name": "read", "arguments": {"path": "a.py"}}'
TAGGED = f"<tool_call>\n{READ}\n</tool_call>"


def through(*events: ProviderEvent, offered: Iterable[str] = OFFERED) -> list[ProviderEvent]:
    reader = TextCallReader([ToolSpec(name, "", {"type": "object"}) for name in offered], LOCAL)
    return [one for event in events for one in reader.take(event)]


def read(*pieces: str, stop: StopReason = StopReason.END_TURN) -> tuple[str, list[tuple[str, str]], StopReason]:
    """The text, the calls and the stop of an answer."""
    events = through(*map(TextPiece, pieces), StopPiece(stop))
    text = "".join(one.text for one in events if isinstance(one, TextPiece))
    calls = [(one.call.name, one.call.arguments) for one in events if isinstance(one, CallPiece)]
    assert isinstance(events[-1], StopPiece)
    return text, calls, events[-1].reason


@pytest.mark.parametrize(
    "text",
    [
        READ,
        f"\n {READ} \n",
        TAGGED,
        f"\n\n{TAGGED}\n",
        f"<tool_call>{READ}",
        '{"name":"read","parameters":{"path": "a.py"}}',
        '{"type":"function","name":"read","parameters":{"path": "a.py"}}',
        '{"type":"function","function":{"name":"read","arguments":{"path": "a.py"}}}',
        f"```json\n{READ}\n```",
        f"```\n{TAGGED}\n```",
        '{"id":"x","name":"read","arguments":"{\\"path\\": \\"a.py\\"}"}',
    ],
)
def test_a_call_in_a_models_own_notation(text: str) -> None:
    for pieces in ([text], list(text)):
        said, calls, stop = read(*pieces)
        assert [(name, json.loads(arguments)) for name, arguments in calls] == [("read", {"path": "a.py"})]
        assert (said, stop) == ("", StopReason.TOOL_USE)


def test_text_before_the_call_stays() -> None:
    assert read(f"Let me look.\n{TAGGED}") == ("Let me look.\n", [("read", '{"path": "a.py"}')], StopReason.TOOL_USE)


def test_several_calls_keep_their_order_and_have_ids_of_their_own() -> None:
    events = through(TextPiece(f'{TAGGED}\n<tool_call>{{"name":"ls"}}</tool_call>\n{TAGGED}'), END)
    calls = [one.call for one in events if isinstance(one, CallPiece)]
    assert [(call.name, call.arguments) for call in calls] == [
        ("read", '{"path": "a.py"}'),
        ("ls", "{}"),
        ("read", '{"path": "a.py"}'),
    ]
    assert len({call.id for call in calls}) == 3


def test_arguments_are_unchanged_and_may_contain_tags() -> None:
    written = '{"path": "x", "text": "</tool_call>\\n<tool_call>{}", "n": 1.50}'
    text = f'<tool_call>{{"name":"read","arguments":{written}}}</tool_call>'
    assert read(text) == ("", [("read", written)], StopReason.TOOL_USE)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "rm", "arguments": {}}',
        '{"name": "read"}',
        '{"name": "read", "version": "1.0"}',
        '{"name": "read", "arguments": {}, "why": "x"}',
        '{"name": "read", "arguments": []}',
        '{"name": "read", "arguments": {}, "parameters": {}}',
        '{"name": "ls", "function": {"name": "read", "arguments": {}}}',
        f"{READ} is how it is called.",
        f"{READ}\n{READ}",
        f"[{READ}]",
        f"Use {READ}",
        f"Write {TAGGED} to call it.",
        f"As in `{TAGGED}`",
        f"As in\n```\n{TAGGED}\n```",
        f"{TAGGED}\nThe file says: hello",
        f'{TAGGED}\n<tool_call>{{"name":"rm"}}</tool_call>',
        "<tool_call>read a.py</tool_call>",
        '<tool_call>{"name":"read","arguments":{"path":"a',
        "<tool_call>",
        "</tool_call>",
        "<tool_cal",
        "{",
        '{"na',
        "{}",
        "\n <",
        '{"text": "a package"}',
        '{"name": "\\ud83c", "arguments": {}}',
        '{"name": ' + "[" * 5000,
        '<tool_call>{"name": ' + "[" * 5000,
    ],
)
def test_ambiguous_text_stays_text(text: str) -> None:
    for pieces in ([text], list(text)):
        assert read(*pieces) == (text, [], StopReason.END_TURN)


def test_a_possibly_truncated_call_is_text() -> None:
    for reason in (StopReason.MAX_TOKENS, StopReason.CONTEXT_WINDOW, StopReason.OTHER):
        assert read(TAGGED, stop=reason) == (TAGGED, [], reason)


def test_without_offered_tools_nothing_is_recognized() -> None:
    assert through(TextPiece(READ), END, offered=()) == [TextPiece(READ), END]


def test_a_backend_that_parses_calls_itself_is_trusted() -> None:
    call = CallPiece(ToolCall("a", "ls"))
    stop = StopPiece(StopReason.TOOL_USE)
    for last in (stop, END):
        events = (TextPiece(READ), call, TextPiece(f"\n{TAGGED}"), last)
        assert through(*events) == list(events)


def test_other_events_keep_their_places() -> None:
    thought, usage = ThinkingPiece("hm"), UsagePiece(Usage(1, 2))
    name, *_ = through(thought, TextPiece(READ), usage, END)[1:]
    assert isinstance(name, CallPiece)
    assert through(thought, TextPiece(READ), usage, END)[2:] == [usage, StopPiece(StopReason.TOOL_USE)]
    assert through(TextPiece("{"), usage, END) == [TextPiece("{"), usage, END]
    assert through(TextPiece("hi"), usage) == [TextPiece("hi"), usage]
    for other in (thought, OpaquePiece("{}")):
        assert through(TextPiece(READ), other, END) == [TextPiece(READ), other, END]
        assert isinstance(through(TextPiece("\n"), other, TextPiece(READ), END)[2], CallPiece)
        assert through(TextPiece(READ), other, TextPiece("\n<tool_call>1"))[2:] == [
            TextPiece("\n<tool_call>1"),
        ]


@pytest.mark.parametrize(
    "text", ["a", "a < b", "\n\nx", '{"b', "{ 1", "[1", "<b", "x\n<tool_x", "<tool_call>1", "x <tool_call>x y"]
)
def test_text_that_cannot_become_a_call_is_yielded_at_once(text: str) -> None:
    assert "".join(one.text for one in through(*map(TextPiece, text)) if isinstance(one, TextPiece)) == text


def test_buffered_text_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(possible_call, "MAX_HELD_CHARACTERS", 60)
    long = '{"name":"read","arguments":{"path":"' + "a" * 60
    assert through(TextPiece(long)) == [TextPiece(long)]
    assert through(TextPiece(READ), END)[-1] == StopPiece(StopReason.TOOL_USE)
    rest = '"}}'
    assert through(TextPiece(long), TextPiece(rest), TextPiece(TAGGED), END)[1:] == [
        TextPiece(rest),
        TextPiece(TAGGED),
        END,
    ]


@pytest.mark.parametrize("sign", ["", "{", "<tool_call>", "<tool_call>{"])
def test_white_space_is_not_buffered_indefinitely(sign: str) -> None:
    most = sign + " " * (MAX_BLANK_CHARACTERS - len(sign))
    assert through(TextPiece(most)) == []
    assert through(TextPiece(most), TextPiece(" ")) == [TextPiece(f"{most} ")]


def test_a_call_is_recognized_after_any_white_space() -> None:
    text, calls, _ = read(*["\n"] * 3 * MAX_BLANK_CHARACTERS, READ)
    assert (text.strip(), len(calls)) == ("", 1)


def test_too_many_calls_are_text() -> None:
    assert len(read(TAGGED * 256)[1]) == 256
    assert read(TAGGED * 257) == (TAGGED * 257, [], StopReason.END_TURN)


TOKENS = [
    "<tool_call>",
    "</tool_call>",
    READ,
    "<tool",
    "_call>",
    "{",
    "}",
    '"name"',
    '{"name":"ls","arguments":{}}',
    "\n",
    " ",
    "x",
    "```",
    "<think>",
]
texts = st.lists(st.sampled_from(TOKENS), max_size=7).map("".join)


@given(texts, st.data())
def test_any_answer_is_read_independently_of_chunk_boundaries(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = read(*filter(None, pieces))
    assert whole == read(*text)
    said, calls, stop = whole
    assert (stop is StopReason.TOOL_USE) == bool(calls)
    assert said == text if not calls else text.startswith(said)


# -- around a stream -----------------------------------------------------------------------------------------------


async def stream(*events: ProviderEvent, error: ProviderError | None = None) -> AsyncGenerator[ProviderEvent]:
    for event in events:
        yield event
    if error is not None:
        raise error


def request(**more: Any) -> CompletionRequest:
    return CompletionRequest("m", (), tools=(ToolSpec("read", "", {"type": "object"}),), **more)


async def test_a_stream_is_wrapped() -> None:
    [call, stop] = [one async for one in extract_text_calls(stream(TextPiece(READ), END), request(), LOCAL)]
    assert isinstance(call, CallPiece)
    assert stop == StopPiece(StopReason.TOOL_USE)


async def test_a_request_without_tool_choice_gets_no_calls() -> None:
    events = [one async for one in extract_text_calls(stream(TextPiece(READ), END), request(tool_choice="none"), LOCAL)]
    assert events == [TextPiece(READ), END]


async def test_a_failing_stream_yields_its_buffered_text() -> None:
    events: list[ProviderEvent] = []
    failing = stream(TextPiece('{"name":'), error=ProviderError(Code.STREAM_TRUNCATED, "cut"))

    async def collect() -> None:
        async for one in extract_text_calls(failing, request(), LOCAL):
            events.append(one)  # noqa: PERF401 - a comprehension would lose them with the failure

    with pytest.raises(ProviderError, match="cut"):
        await collect()
    assert events == [TextPiece('{"name":')]
