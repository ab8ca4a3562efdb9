"""The Ollama decoder: captured streams at every chunk size, public bug cases, laws."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doubles.ollama_server import call, done, line, said
from yarrow.errors import Code, ProviderError
from yarrow.message import StopReason, ToolCall, Usage
from yarrow.provider.backend_errors import Backend
from yarrow.provider.base import CallPiece, OpaquePiece, ProviderEvent, StopPiece, TextPiece, ThinkingPiece, UsagePiece
from yarrow.provider.ollama.capabilities import FIELD_MARK
from yarrow.provider.ollama.decoder import OllamaDecoder

CAPTURES = sorted((Path(__file__).parents[2] / "fixtures/wire/ollama-style").glob("*.ndjson"))
SPEAKER = Backend("test")


class Decoded:
    """All events of a stream, and why it failed if it did."""

    def __init__(self, pieces: Iterable[bytes], **more: int) -> None:
        decoder = OllamaDecoder(SPEAKER, **more)
        self.events: list[ProviderEvent] = []
        for piece in pieces:
            self.events += decoder.feed(piece)
        self.events += decoder.end()
        self.failure: ProviderError | None = decoder.failure

    @property
    def calls(self) -> list[ToolCall]:
        return [one.call for one in self.events if isinstance(one, CallPiece)]

    @property
    def text(self) -> str:
        return "".join(one.text for one in self.events if isinstance(one, TextPiece))

    @property
    def thinking(self) -> str:
        return "".join(one.text for one in self.events if isinstance(one, ThinkingPiece))

    @property
    def stop(self) -> StopReason:
        [only] = [one.reason for one in self.events if isinstance(one, StopPiece)]
        assert self.events[-1] == StopPiece(only)
        return only

    @property
    def code(self) -> Code | None:
        return None if self.failure is None else self.failure.code

    def normalized(self) -> list[dict[str, Any]]:
        """The events as the captures' expectations have them."""
        result: list[dict[str, Any]] = []
        for one in self.events:
            match one:
                case TextPiece(words):
                    _join(result, "text_delta", words)
                case ThinkingPiece(words):
                    _join(result, "thinking_delta", words)
                case CallPiece(ToolCall(call_id, name, arguments)):
                    value = json.loads(arguments)
                    result.append({"kind": "tool_call", "id": call_id, "name": name, "arguments": value})
                case UsagePiece(used):
                    counts = {"input": used.input, "output": used.output}
                    cached = {"cache_read": used.cache_read, "cache_write": used.cache_write}
                    result.append({"kind": "usage"} | counts | cached)
                case StopPiece(reason):
                    result.append({"kind": "stop", "reason": reason.value})
                case OpaquePiece():
                    raise AssertionError("this format has none")
        if self.failure is not None:
            told = {"code": self.failure.code.lower(), "message": self.failure.message}
            result.append({"kind": "error"} | told | {"retryable": self.failure.retryable})
        return result


def _join(result: list[dict[str, Any]], kind: str, words: str) -> None:
    assert words
    if result and result[-1]["kind"] == kind:
        result[-1]["text"] += words
    else:
        result.append({"kind": kind, "text": words})


def decode(*pieces: bytes, **more: int) -> Decoded:
    return Decoded(pieces, **more)


def in_pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)] if size else [data]


def agrees(got: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """True if an event is the expected one; `*` matches any text."""
    if got.keys() != wanted.keys():
        return False
    free = {name for name in ("id", "message") if wanted.get(name) == "*" and got[name]}
    part = {"message"} if wanted.get("message", "*") in got.get("message", "") else set[str]()
    return all(got[name] == value for name, value in wanted.items() if name not in free | part)


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_recordings_at_every_chunk_size(capture: Path) -> None:
    data = capture.read_bytes()
    expected = json.loads(capture.with_suffix(".expected.json").read_text("utf-8"))
    for size in [*expected["chunk_sizes"], *range(4, 40)]:
        got = Decoded(in_pieces(data, size)).normalized()
        assert len(got) == len(expected["events"]), got
        for one, wanted in zip(got, expected["events"], strict=True):
            assert agrees(one, wanted), (size, one, wanted)
        ids = [one["id"] for one in got if one["kind"] == "tool_call"]
        assert len(ids) == len(set(ids))


def test_recordings_exist() -> None:
    assert len(CAPTURES) == 9


# -- public bug cases ----------------------------------------------------------------------------------------------


def test_case_P_04_a_call_without_arguments() -> None:
    nothing = [{"function": {"name": "ls"}}, {"function": {"name": "ls", "arguments": None}}, call("ls")]
    calls = decode(said(tool_calls=nothing), done()).calls
    assert [(one.arguments, one.invalid_arguments) for one in calls] == [("{}", "")] * 3


def test_case_P_05_characters_split_by_a_read() -> None:
    data = said("你好🌍") + done()
    for size in range(1, 9):
        assert Decoded(in_pieces(data, size)).text == "你好🌍"


def test_case_P_10_a_stream_without_a_last_line() -> None:
    for rest in (b"", b"\n", done()[:-9], b'{"x":' + b"[" * 9999):
        decoded = decode(said("The answer is") + rest)
        assert decoded.events == [TextPiece("The answer is")]
        assert decoded.failure is not None
        assert (decoded.code, decoded.failure.retryable) == (Code.STREAM_TRUNCATED, True)
    assert decode(said("4") + done()[:-1]).stop is StopReason.END_TURN


def test_case_P_12_a_call_followed_by_a_stop_line() -> None:
    decoded = decode(said(tool_calls=[call("read", {"path": "a"})]), done(prompt_eval_count=50, eval_count=9))
    [only] = decoded.calls
    assert (only.name, only.arguments, bool(only.id)) == ("read", '{"path": "a"}', True)
    assert decoded.events[1:] == [UsagePiece(Usage(50, 9)), StopPiece(StopReason.TOOL_USE)]


@pytest.mark.parametrize(
    ("contents", "thinking", "text"),
    [
        (["<think>secret</thi", "nk>ANSWER"], "secret", "ANSWER"),
        (["<th", "ink>a</think>b"], "a", "b"),
        (["a < b and x<", "y"], "", "a < b and x<y"),
        ([" \n", "<"], "", " \n<"),
    ],
)
def test_case_P_14_a_think_tag_over_two_lines(contents: list[str], thinking: str, text: str) -> None:
    decoded = decode(*map(said, contents), done())
    assert (decoded.thinking, decoded.text) == (thinking, text)


# -- thinking ------------------------------------------------------------------------------------------------------


def test_tags_stay_text_if_the_server_separates_thinking() -> None:
    decoded = decode(said(thinking="hm"), said("<think> is a tag"), done())
    assert decoded.events[:2] == [ThinkingPiece("hm", FIELD_MARK), TextPiece("<think> is a tag")]
    held = decode(said("<th"), said(thinking="hm"), said("x"), done())
    assert held.events[:3] == [TextPiece("<th"), ThinkingPiece("hm", FIELD_MARK), TextPiece("x")]


def test_thinking_from_tags_is_not_marked_as_a_field() -> None:
    assert decode(said("<think>hm</think>x"), done()).events[:2] == [ThinkingPiece("hm"), TextPiece("x")]


def test_buffered_text_precedes_calls_and_failures() -> None:
    assert decode(said("<thi"), said(tool_calls=[call("ls")]), done()).events[0] == TextPiece("<thi")
    assert decode(said("<think>a</th"), line({"error": "x"})).thinking == "a</th"
    assert decode(said("<thi")).events == [TextPiece("<thi")]


# -- calls ---------------------------------------------------------------------------------------------------------


def test_arguments_keep_their_digits_and_their_order() -> None:
    raw = b'{"message":{"tool_calls":[{"function":{"name":"f","arguments":{"b":1.50,"a":12345678901234567890}}}]}}\n'
    assert decode(raw, done()).calls[0].arguments == '{"b":1.50,"a":12345678901234567890}'


def test_arguments_that_are_not_an_object_are_kept_as_invalid() -> None:
    for value in ([1], "x", 5):
        [only] = decode(said(tool_calls=[{"function": {"name": "f", "arguments": value}}]), done()).calls
        assert (only.arguments, only.invalid_arguments) == ("{}", json.dumps(value))


def test_arguments_encoded_as_a_string_are_decoded() -> None:
    function = {"name": "f", "arguments": '{"b":1.50}'}
    assert decode(said(tool_calls=[{"function": function}]), done()).calls[0].arguments == '{"b":1.50}'


def test_valid_ids_are_kept() -> None:
    calls = [call("f", call_id="a"), call("f", call_id="a"), call("f"), call("g", call_id="b")]
    ids = [one.id for one in decode(said(tool_calls=calls), done()).calls]
    assert (ids[0], ids[3]) == ("a", "b")
    assert len(set(ids)) == 4


def test_calls_that_cannot_be_run_are_a_failure() -> None:
    for calls in ([call("")], [{}], [call("f")] * 257):
        decoded = decode(said(tool_calls=calls), done())
        assert decoded.code is Code.MALFORMED_TOOL_CALL
    assert len(decode(said(tool_calls=[call("f")] * 256), done()).calls) == 256


# -- the end -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("stop", StopReason.END_TURN),
        ("", StopReason.END_TURN),
        ("length", StopReason.MAX_TOKENS),
        ("load", StopReason.OTHER),
        ("unload", StopReason.OTHER),
        ("new", StopReason.OTHER),
    ],
)
def test_stop_reasons_are_translated(reason: str, stop: StopReason) -> None:
    assert decode(said("x"), done(reason)).stop is stop


def test_an_old_server_sends_no_stop_reason() -> None:
    assert decode(said("x"), line({"done": True})).events == [TextPiece("x"), StopPiece(StopReason.END_TURN)]


def test_a_full_context_differs_from_the_output_limit() -> None:
    full = done("length", prompt_eval_count=4000, eval_count=96)
    assert decode(said("x"), full, window=4096).stop is StopReason.CONTEXT_WINDOW
    assert decode(said("x"), full, window=8192).stop is StopReason.MAX_TOKENS
    assert decode(said("x"), full).stop is StopReason.MAX_TOKENS


def test_usage_may_be_partial() -> None:
    assert UsagePiece(Usage(0, 7)) in decode(said("x"), done(eval_count=7)).events
    assert UsagePiece(Usage(0, 0)) in decode(said("x"), done(eval_count=-7)).events
    assert not [one for one in decode(said("x"), done()).events if isinstance(one, UsagePiece)]


def test_nothing_is_yielded_after_the_end() -> None:
    assert decode(said("x"), done(), said("y"), line({"error": "z"})).text == "x"
    assert decode(said("x") + line({"error": "z"}) + said("y") + done()).text == "x"


@pytest.mark.parametrize(
    ("text", "code", "retryable"),
    [
        ("the prompt is longer than the context length currently available to the model", Code.CONTEXT_OVERFLOW, False),
        ("server busy, please try again.  maximum pending requests exceeded", Code.OVERLOADED, True),
        ("model runner has unexpectedly stopped", Code.SERVER_ERROR, True),
    ],
)
def test_errors_inside_the_stream_are_typed(text: str, code: Code, retryable: bool) -> None:
    decoded = decode(said("Part"), line({"error": text}))
    assert decoded.failure is not None
    assert (decoded.text, decoded.code, decoded.failure.retryable) == ("Part", code, retryable)
    assert " ".join(text.split()) in decoded.failure.message


@pytest.mark.parametrize(
    "data", [b"<html>\n", b"[]\n", b'{"message":5}\n', b'{"message"\n', b'{"x":' + b"[" * 9999 + b"\n"]
)
def test_an_invalid_line_is_malformed(data: bytes) -> None:
    decoded = decode(said("x"), data, done())
    assert (decoded.text, decoded.code) == ("x", Code.MALFORMED_RESPONSE)


def test_invalid_utf8_does_not_end_the_answer() -> None:
    assert decode(said("a\x00b").replace(b"\\u0000", b"\xff"), done()).text == "a\ufffdb"


# -- laws ----------------------------------------------------------------------------------------------------------

TOKENS = ["<think>", "</think>", "<", '"', "\r\n", "\u2028", "\x85", "", " ", "🌍", '{"error":"x"}', "\n"]
texts = st.lists(st.sampled_from(TOKENS), max_size=4).map("".join)
lines = st.one_of(
    texts.map(said),
    texts.map(lambda text: said(thinking=text)),
    st.lists(texts.map(lambda text: call("f", {"a": text})), max_size=2).map(lambda calls: said(tool_calls=calls)),
    st.sampled_from([b"\n", b"\r\n", b"  \n", line({"novel": 1}), line({"message": None})]),
)
streams = st.tuples(st.lists(lines, max_size=8), st.sampled_from([done(), done("length"), line({"error": "e"}), b""]))


@given(streams, st.integers(1, 50), st.sampled_from([0, 3, 1000]))
def test_chunk_boundaries_do_not_matter(stream: tuple[list[bytes], bytes], size: int, chunk: int) -> None:
    data = b"".join(stream[0]) + stream[1]
    whole, cut = Decoded([data]).normalized(), Decoded(in_pieces(data, size), chunk_size=chunk).normalized()
    for one in (*whole, *cut):
        one.pop("id", None)
    assert cut == whole
    assert whole[-1]["kind"] == ("stop" if stream[1].startswith(b'{"model"') else "error")


def test_deltas_are_joined_up_to_the_chunk_size() -> None:
    pieces = [said(letter) for letter in "abcd"]
    assert decode(*pieces, done()).events[:4] == [TextPiece(letter) for letter in "abcd"]
    assert decode(*pieces, done(), chunk_size=2).events[:2] == [TextPiece("ab"), TextPiece("cd")]
    assert decode(b"".join(pieces), done()).events[0] == TextPiece("abcd")


def test_a_lone_surrogate_is_replaced() -> None:
    first = b'{"message":{"content":"\\ud83c\\udf0d \\ud83c"}}\n'
    decoded = Decoded([first, done()])
    assert (decoded.text, decoded.stop, decoded.failure) == ("\U0001f30d \ufffd", StopReason.END_TURN, None)


def test_a_lone_surrogate_in_arguments_is_replaced() -> None:
    first = b'{"message":{"tool_calls":[{"function":{"name":"ls","arguments":{"path":"a\\ud83c"}}}]}}\n'
    decoded = Decoded([first, done()])
    assert [(one.name, json.loads(one.arguments)) for one in decoded.calls] == [("ls", {"path": "a\ufffd"})]
    assert decoded.failure is None
