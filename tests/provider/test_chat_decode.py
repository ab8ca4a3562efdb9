"""The chat-completions decoder: captured streams at every chunk size, public bug cases, laws."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doubles.chat_server import DONE, chunk, event, finish, usage
from yarrow.errors import Code, ProviderError
from yarrow.message import StopReason, ToolCall, Usage
from yarrow.provider.backend_errors import Backend
from yarrow.provider.base import (
    CallPiece,
    OpaquePiece,
    ProviderEvent,
    StopPiece,
    TextPiece,
    ThinkingPiece,
    UsagePiece,
)
from yarrow.provider.chat_completions.decoder import ChatDecoder

WIRE = Path(__file__).parents[1] / "fixtures" / "wire"
CAPTURES = sorted([*WIRE.glob("openai-style/*.sse"), *WIRE.glob("llamacpp-style/*.sse")])
SPEAKER = Backend("test")


class Decoded:
    """All events of a stream, and why it failed if it did."""

    def __init__(self, pieces: Iterable[bytes], *, chunk_size: int = 0) -> None:
        decoder = ChatDecoder(SPEAKER, chunk_size=chunk_size)
        self.events: list[ProviderEvent] = []
        for piece in pieces:
            self.events += decoder.feed(piece)
        self.events += decoder.end()
        self.failure: ProviderError | None = decoder.failure

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextPiece))

    @property
    def thinking(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, ThinkingPiece))

    @property
    def calls(self) -> list[ToolCall]:
        return [event.call for event in self.events if isinstance(event, CallPiece)]

    @property
    def usage(self) -> Usage:
        [only] = [event.usage for event in self.events if isinstance(event, UsagePiece)]
        return only

    @property
    def stop(self) -> StopReason:
        [only] = [event.reason for event in self.events if isinstance(event, StopPiece)]
        assert self.events[-1] == StopPiece(only)
        return only


def decode(*pieces: bytes) -> Decoded:
    return Decoded(pieces)


def call_chunk(*calls: dict[str, Any]) -> bytes:
    return chunk({"tool_calls": list(calls)})


def cut_in_pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)] if size else [data]


def normalized(decoded: Decoded) -> list[dict[str, Any]]:
    """The events as the captures' expectations have them."""
    result: list[dict[str, Any]] = []
    for one in decoded.events:
        match one:
            case TextPiece(text):
                _join(result, "text_delta", text)
            case ThinkingPiece(text):
                _join(result, "thinking_delta", text)
            case CallPiece(call):
                result.append(
                    {"kind": "tool_call", "id": call.id, "name": call.name, "arguments": json.loads(call.arguments)}
                )
            case UsagePiece(used):
                counts = {"input": used.input, "output": used.output}
                result.append(
                    {"kind": "usage"} | counts | {"cache_read": used.cache_read, "cache_write": used.cache_write}
                )
            case StopPiece(reason):
                result.append({"kind": "stop", "reason": reason.value})
            case OpaquePiece():
                raise AssertionError(one)
    if decoded.failure is not None:
        failure = decoded.failure
        result = [one for one in result if one["kind"] != "usage"]
        result.append({"kind": "error", "code": failure.code.lower(), "retryable": failure.retryable})
    return result


def _join(result: list[dict[str, Any]], kind: str, text: str) -> None:
    assert text
    if result and result[-1]["kind"] == kind:
        result[-1]["text"] += text
    else:
        result.append({"kind": kind, "text": text})


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_recordings_at_every_chunk_size(capture: Path) -> None:
    data = capture.read_bytes()
    expected = json.loads(capture.with_suffix("").with_suffix(".expected.json").read_text("utf-8"))
    wanted: list[dict[str, Any]] = expected["events"]
    message = wanted[-1].pop("message", "*")
    for size in sorted({*expected["chunk_sizes"], *range(1, 41)}):
        decoded = Decoded(cut_in_pieces(data, size))
        assert normalized(decoded) == wanted, size
        if message != "*":
            assert decoded.failure is not None
            assert message in decoded.failure.message


def test_recordings_exist() -> None:
    assert len(CAPTURES) == 17


# -- public cases --------------------------------------------------------------------------------------------------


P_01 = (
    call_chunk({"id": "a1", "type": "function", "function": {"name": "read", "arguments": '{"path":'}}),
    call_chunk({"function": {"arguments": '"x.py"}'}}),
    finish("tool_calls"),
    DONE,
)


def test_case_P_01_missing_index() -> None:
    decoded = decode(*P_01)
    assert decoded.calls == [ToolCall("a1", "read", '{"path":"x.py"}')]
    assert decoded.stop is StopReason.TOOL_USE


def test_case_P_02_two_calls_share_an_index() -> None:
    decoded = decode(
        call_chunk({"index": 0, "id": "a", "function": {"name": "grep", "arguments": '{"pattern":"foo"}'}}),
        call_chunk({"index": 0, "id": "b", "function": {"name": "grep", "arguments": '{"pattern":"bar"}'}}),
        finish("tool_calls"),
        DONE,
    )
    assert decoded.calls == [ToolCall("a", "grep", '{"pattern":"foo"}'), ToolCall("b", "grep", '{"pattern":"bar"}')]


def test_case_P_02_one_index_and_no_ids() -> None:
    decoded = decode(
        call_chunk({"index": 0, "function": {"name": "grep", "arguments": '{"pattern":"foo"}'}}),
        call_chunk({"index": 0, "function": {"name": "grep", "arguments": '{"pattern":"bar"}'}}),
        finish("tool_calls"),
        DONE,
    )
    assert [call.arguments for call in decoded.calls] == ['{"pattern":"foo"}', '{"pattern":"bar"}']


def test_case_P_03_interleaved_fragments() -> None:
    decoded = decode(
        call_chunk({"index": 0, "id": "a", "function": {"name": "read", "arguments": '{"pa'}}),
        call_chunk({"index": 1, "id": "b", "function": {"name": "read", "arguments": '{"pa'}}),
        call_chunk({"index": 0, "function": {"arguments": 'th":"one"}'}}),
        call_chunk({"index": 1, "function": {"arguments": 'th":"two"}'}}),
        finish("tool_calls"),
        DONE,
    )
    assert decoded.calls == [ToolCall("a", "read", '{"path":"one"}'), ToolCall("b", "read", '{"path":"two"}')]


@pytest.mark.parametrize("arguments", ["", None, "  ", "{}", {}])
def test_case_P_04_empty_arguments(arguments: object) -> None:
    call = {"index": 0, "id": "a", "function": {"name": "list_tasks", "arguments": arguments}}
    assert decode(call_chunk(call), finish("tool_calls"), DONE).calls == [ToolCall("a", "list_tasks", "{}")]


@pytest.mark.parametrize("size", range(1, 9))
def test_case_P_05_a_character_split_by_a_read(size: int) -> None:
    decoded = Decoded(cut_in_pieces(chunk({"content": "你好🌍"}) + finish("stop") + DONE, size))
    assert decoded.text == "你好🌍"


@pytest.mark.parametrize("done", [b"data:[DONE]\n\n", DONE, b"data:  [DONE] \r\n\r\n"])
def test_case_P_06_data_without_a_space(done: bytes) -> None:
    tight = [piece.replace(b"data: ", b"data:") for piece in P_01[:-1]]
    assert decode(*tight, done).calls == decode(*P_01).calls


def test_case_P_07_keep_alive_comments() -> None:
    comments = b": OPENROUTER PROCESSING\n\n" * 3
    decoded = decode(comments, chunk({"content": "hi"}), b": ping\n\n", finish("stop"), DONE)
    assert decoded.events == [TextPiece("hi"), StopPiece(StopReason.END_TURN)]


def test_case_P_08_error_inside_a_stream() -> None:
    decoded = decode(chunk({"content": "Part"}), event({"error": {"code": 502, "message": "upstream"}}))
    assert decoded.events == [TextPiece("Part")]
    assert decoded.failure is not None
    assert (decoded.failure.code, decoded.failure.retryable) == (Code.SERVER_ERROR, True)
    assert "upstream" in decoded.failure.message


HALF = {"index": 0, "id": "a", "function": {"name": "bash", "arguments": '{"command":"rm -rf build && ec'}}


def test_case_P_09_an_incomplete_call_labelled_as_complete() -> None:
    decoded = decode(call_chunk(HALF), finish("tool_calls"), DONE)
    [call] = decoded.calls
    assert (call.arguments, call.invalid_arguments) == ("{}", '{"command":"rm -rf build && ec')
    assert decoded.stop is StopReason.TOOL_USE


def test_case_P_09_an_incomplete_call_at_the_token_limit() -> None:
    decoded = decode(call_chunk(HALF), finish("length"), DONE)
    assert decoded.events == [StopPiece(StopReason.MAX_TOKENS)]


def test_case_P_09_a_complete_call_before_an_incomplete_one_stays() -> None:
    whole = {"index": 0, "id": "a", "function": {"name": "read", "arguments": '{"path":"a"}'}}
    bare = {"index": 1, "id": "b", "function": {"name": "list_tasks", "arguments": ""}}
    half = {"index": 2, "id": "c", "function": {"name": "read", "arguments": ""}}
    decoded = decode(call_chunk(whole, bare, half), finish("length"), DONE)
    assert [call.id for call in decoded.calls] == ["a", "b"]
    assert decoded.stop is StopReason.MAX_TOKENS


def test_case_P_10_closed_before_the_end() -> None:
    decoded = decode(chunk({"content": "The answer is"}))
    assert decoded.events == [TextPiece("The answer is")]
    assert decoded.failure is not None
    assert (decoded.failure.code, decoded.failure.retryable) == (Code.STREAM_TRUNCATED, True)


def test_case_P_10_only_the_done_marker_is_missing() -> None:
    assert decode(chunk({"content": "4"}), finish("stop")).stop is StopReason.END_TURN


def test_case_P_10_only_the_finish_reason_is_missing() -> None:
    assert decode(chunk({"content": "4"}), DONE).stop is StopReason.END_TURN


USAGES = {
    "own chunk": (finish("stop"), usage(12, 3)),
    "no choices": (finish("stop"), event({"usage": {"prompt_tokens": 12, "completion_tokens": 3}})),
    "growing": (usage(12, 0), usage(12, 1), finish("stop"), usage(12, 3)),
    "in the choice": (
        event(
            {
                "choices": [
                    {"delta": {}, "finish_reason": "stop", "usage": {"prompt_tokens": 12, "completion_tokens": 3}}
                ]
            }
        ),
    ),
    "groq": (finish("stop", x_groq={"usage": {"prompt_tokens": 12, "completion_tokens": 3}}),),
    "as text and fractions": (finish("stop", usage={"prompt_tokens": "12", "completion_tokens": 3.0}),),
    "nulls do not erase": (usage(12, 3), finish("stop", usage={"prompt_tokens": None, "total_tokens": 15})),
    "timings": (finish("stop", timings={"prompt_n": 12, "predicted_n": 3, "predicted_ms": 1.5}),),
}


@pytest.mark.parametrize("name", USAGES)
def test_case_P_11_usage_in_any_chunk(name: str) -> None:
    decoded = decode(chunk({"content": "hi"}), *USAGES[name], DONE)
    assert decoded.usage == Usage(input=12, output=3)
    assert decoded.text == "hi"


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 90}}, Usage(10, 5, cache_read=90)),
        ({"prompt_tokens_details": {"cached_tokens": 90, "cache_write_tokens": 7}}, Usage(3, 5, 90, 7)),
        ({"prompt_tokens_details": {"cached_tokens": 900}}, Usage(0, 5, cache_read=900)),
        ({"prompt_cache_hit_tokens": 40}, Usage(60, 5, cache_read=40)),
        ({"completion_tokens_details": {"reasoning_tokens": 4}}, Usage(100, 5, thinking=4)),
    ],
)
def test_cached_tokens_are_part_of_the_prompt(counts: dict[str, Any], expected: Usage) -> None:
    told = {"prompt_tokens": 100, "completion_tokens": 5} | counts
    assert decode(chunk({"content": "x"}), finish("stop", usage=told), DONE).usage == expected


def test_timings_supply_cached_tokens_missing_in_usage() -> None:
    last = finish("stop", usage={"prompt_tokens": 40, "completion_tokens": 3}, timings={"cache_n": 36, "prompt_n": 4})
    assert decode(last, DONE).usage == Usage(4, 3, cache_read=36)


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning": "A"},
        {"reasoning_content": "A"},
        {"reasoning": "A", "reasoning_content": "A"},
        {"reasoning_text": "A", "content": None},
    ],
)
def test_case_P_15_thinking_in_any_field_once(delta: dict[str, Any]) -> None:
    decoded = decode(chunk(delta), chunk({"reasoning_content": None, "content": ""}), finish("stop"), DONE)
    assert decoded.thinking == "A"
    assert decoded.text == ""


def test_case_P_15_the_field_is_remembered() -> None:
    [thinking, *_] = decode(chunk({"reasoning": "A"}), finish("stop"), DONE).events
    assert thinking == ThinkingPiece("A", '{"field":"reasoning"}')


@pytest.mark.parametrize("late", [{"id": "a1", "function": {"name": "read"}}, {"function": {"name": "read"}}])
def test_case_P_25_arguments_before_id_and_name(late: dict[str, Any]) -> None:
    decoded = decode(
        call_chunk({"index": 0, "function": {"arguments": '{"path":"a"}'}}),
        call_chunk({"index": 0} | late),
        finish("tool_calls"),
        DONE,
    )
    [call] = decoded.calls
    assert (call.name, call.arguments) == ("read", '{"path":"a"}')
    assert call.id == late.get("id", call.id)
    assert call.id


def test_case_P_27_second_empty_finish_chunk() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "read", "arguments": '{"path":"a"}'}}
    last = finish("tool_calls", usage={"prompt_tokens": 9, "completion_tokens": 2})
    decoded = decode(call_chunk(call), finish("tool_calls"), last, DONE)
    assert decoded.events == [
        CallPiece(ToolCall("a", "read", '{"path":"a"}')),
        UsagePiece(Usage(9, 2)),
        StopPiece(StopReason.TOOL_USE),
    ]


# -- tool calls ----------------------------------------------------------------------------------------------------


def test_a_repeated_id_names_one_call() -> None:
    calls = [{"index": at, "id": "same", "function": {"name": "f", "arguments": "{}"}} for at in (0, 1)]
    first, second = decode(call_chunk(*calls), finish("tool_calls"), DONE).calls
    assert first.id == "same"
    assert second.id not in ("", "same")


def test_a_repeated_complete_call_is_one_call() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}
    assert decode(call_chunk(call), call_chunk(call), finish("stop"), DONE).calls == [ToolCall("a", "f", '{"x":1}')]
    other = call | {"function": {"name": "f", "arguments": '{"x":2}'}}
    [glued] = decode(call_chunk(call), call_chunk(other), finish("stop"), DONE).calls
    assert glued.invalid_arguments == '{"x":1}{"x":2}'


def test_calls_without_an_index_are_distinguished_by_id() -> None:
    decoded = decode(
        call_chunk({"id": "a", "function": {"name": "f", "arguments": '{"x":'}}),
        call_chunk({"id": "b", "function": {"name": "g", "arguments": '{"y":'}}),
        call_chunk({"id": "a", "function": {"arguments": "1}"}}),
        call_chunk({"id": "b", "function": {"arguments": "2}"}}),
        finish("tool_calls"),
        DONE,
    )
    assert decoded.calls == [ToolCall("a", "f", '{"x":1}'), ToolCall("b", "g", '{"y":2}')]


def test_a_repeated_name_is_not_concatenated() -> None:
    fragments = [
        call_chunk({"index": 0, "function": {"name": "read", "arguments": text}}) for text in ('{"a":', '{"b":1}', "}")
    ]
    [call] = decode(*fragments, finish("tool_calls"), DONE).calls
    assert (call.name, call.arguments) == ("read", '{"a":{"b":1}}')


def test_arguments_as_an_object() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": {"x": 1}}}
    assert decode(call_chunk(call), finish("stop"), DONE).calls == [ToolCall("a", "f", '{"x":1}')]


def test_a_call_without_a_name_is_an_error_and_an_empty_one_is_ignored() -> None:
    decoded = decode(call_chunk({"index": 0, "id": "a", "function": {"arguments": "{}"}}), finish("tool_calls"), DONE)
    assert decoded.failure is not None
    assert decoded.failure.code is Code.MALFORMED_TOOL_CALL
    assert decode(call_chunk({"index": 0}), finish("stop"), DONE).events == [StopPiece(StopReason.END_TURN)]


def test_too_many_calls_are_an_error() -> None:
    calls = [{"index": at, "id": f"{at}", "function": {"name": "f"}} for at in range(257)]
    decoded = decode(call_chunk(*calls), finish("tool_calls"), DONE)
    assert decoded.failure is not None
    assert decoded.failure.code is Code.MALFORMED_TOOL_CALL


# -- what else servers do ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("stop", StopReason.END_TURN),
        ("eos", StopReason.END_TURN),
        ("tool_calls", StopReason.END_TURN),  # said without a call
        ("length", StopReason.MAX_TOKENS),
        ("content_filter", StopReason.CONTENT_FILTER),
        ("model_context_window_exceeded", StopReason.CONTEXT_WINDOW),
        ("novel", StopReason.OTHER),
    ],
)
def test_stop_reasons(reason: str, expected: StopReason) -> None:
    assert decode(chunk({"content": "x"}), finish(reason), DONE).stop is expected


@pytest.mark.parametrize(
    ("reason", "code"), [("error", Code.SERVER_ERROR), ("insufficient_system_resource", Code.OVERLOADED)]
)
def test_failing_finish_reasons(reason: str, code: Code) -> None:
    failure = decode(chunk({"content": "x"}), finish(reason), DONE).failure
    assert failure is not None
    assert (failure.code, failure.retryable) == (code, True)


def test_an_empty_finish_reason_is_ignored() -> None:
    decoded = decode(chunk({"content": "x"}, ""))
    assert decoded.failure is not None


def test_content_in_parts_and_refusals_are_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "novel"}, {"type": "text", "text": "b"}]
    assert decode(chunk({"content": parts}), chunk({"refusal": "no"}), finish("stop"), DONE).text == "abno"


def test_surrogate_pairs_are_joined_and_lone_ones_replaced() -> None:
    pair = b'data: {"choices":[{"delta":{"content":"\\ud83c\\udf0d \\ud83c"}}]}\n\n'
    foreign = b'data: {"choices":[{"delta":{"content":"\xff"}}]}\n\n'
    assert decode(pair, foreign, finish("stop"), DONE).text == "🌍 \ufffd\ufffd"


@pytest.mark.parametrize(
    "data", [b"nonsense", b"5", b'{"choices":5}', b'{"choices":[{"delta":{"content":5}}]}', b"[" * 5000]
)
def test_an_invalid_chunk_is_an_error_that_quotes_it(data: bytes) -> None:
    decoded = decode(chunk({"content": "x"}), b"data: " + data + b"\n\n", finish("stop"), DONE)
    assert decoded.events == [TextPiece("x")]
    assert decoded.failure is not None
    assert (decoded.failure.code, decoded.failure.retryable) == (Code.MALFORMED_RESPONSE, True)
    assert data[:20].decode() in decoded.failure.message
    assert len(decoded.failure.message) < 800


def test_nothing_is_yielded_after_the_done_marker_or_a_failure() -> None:
    whole = decode(chunk({"content": "x"}), DONE, chunk({"content": "y"}), event({"error": "late"}))
    assert whole.text == "x"
    assert whole.failure is None
    failed = decode(event({"error": {"message": "no"}}), chunk({"content": "y"}), finish("stop"), DONE)
    assert failed.events == []


def test_reasoning_details_are_joined_and_kept() -> None:
    decoded = decode(
        chunk(
            {
                "reasoning": "T",
                "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "T", "format": "f"}],
            }
        ),
        chunk({"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "hi", "signature": "s"}]}),
        chunk({"reasoning_details": [{"type": "reasoning.encrypted", "index": 1, "data": "e", "id": "r"}]}),
        chunk({"content": "x"}),
        finish("stop"),
        DONE,
    )
    [opaque] = [one.data for one in decoded.events if isinstance(one, OpaquePiece)]
    assert json.loads(opaque)["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "Thi", "format": "f", "signature": "s"},
        {"type": "reasoning.encrypted", "index": 1, "data": "e", "id": "r"},
    ]


# -- joining -------------------------------------------------------------------------------------------------------


def test_deltas_of_one_read_are_joined() -> None:
    both = chunk({"content": "a"}) + chunk({"content": "b"})
    decoded = decode(both, chunk({"content": "c"}) + finish("stop") + DONE)
    assert decoded.events == [TextPiece("ab"), TextPiece("c"), StopPiece(StopReason.END_TURN)]


def test_thinking_and_text_keep_their_order_within_one_read() -> None:
    decoded = decode(
        chunk({"content": "a"}) + chunk({"reasoning": "t"}) + chunk({"content": "b"}), finish("stop") + DONE
    )
    assert [type(one) for one in decoded.events] == [TextPiece, ThinkingPiece, TextPiece, StopPiece]


def test_chunk_size_joins_across_reads() -> None:
    letters = [chunk({"content": letter}) for letter in "abcdefg"]
    events = Decoded([*letters, finish("stop"), DONE], chunk_size=3).events
    assert events[:-1] == [TextPiece("abc"), TextPiece("def"), TextPiece("g")]


def test_chunk_size_does_not_delay_text_before_a_failure() -> None:
    assert Decoded([chunk({"content": "ab"})], chunk_size=100).events == [TextPiece("ab")]


# -- laws ----------------------------------------------------------------------------------------------------------


@given(st.data())
def test_law_5_a_truncated_stream_is_not_an_answer(data: st.DataObject) -> None:
    """Cut anywhere before the finish reason there is no stop and no call, and the failure says so."""
    capture = data.draw(st.sampled_from(CAPTURES)).read_bytes()
    cut = data.draw(st.integers(0, len(capture)))
    decoded = Decoded([capture[:cut]])
    lines = capture[:cut].split(b"\n")[:-1]  # a line that is not ended was not said
    said = any(b'finish_reason":"' in line and b'finish_reason":null' not in line for line in lines)
    if decoded.failure is None:
        assert said
        assert isinstance(decoded.events[-1], StopPiece)
    else:
        assert decoded.failure.code is Code.STREAM_TRUNCATED or b'"error"' in capture
        assert not any(isinstance(one, StopPiece | CallPiece) for one in decoded.events)
        assert not said or b'"error"' in capture


def said_in(field: str) -> st.SearchStrategy[dict[str, str | None]]:
    return st.dictionaries(st.just(field), st.none() | st.text(max_size=5), min_size=1)


deltas = said_in("content") | said_in("reasoning")


@given(st.lists(deltas, max_size=12), st.lists(st.integers(1, 60), min_size=1, max_size=60), st.integers(0, 9))
def test_chunk_boundaries_and_joining_change_no_text(
    said: list[dict[str, Any]], sizes: list[int], chunk_size: int
) -> None:
    stream = b"".join(map(chunk, said)) + finish("stop") + DONE
    pieces: list[bytes] = []
    while stream:
        pieces.append(stream[: sizes[0]])
        stream, sizes = stream[sizes[0] :], [*sizes[1:], sizes[0]]
    decoded = Decoded(pieces, chunk_size=chunk_size)
    assert decoded.text == "".join(delta.get("content") or "" for delta in said)
    assert decoded.thinking == "".join(delta.get("reasoning") or "" for delta in said)
    assert decoded.stop is StopReason.END_TURN


@given(
    st.lists(
        st.sampled_from(
            [chunk({"content": "x"}), finish("stop"), DONE, b"data: {", b"\n\n", b"\r", b":", b"data:\n", b"\xff"]
        )
    )
)
def test_no_bytes_raise(pieces: list[bytes]) -> None:
    decoded = Decoded(pieces)
    assert (decoded.failure is None) == isinstance(decoded.events[-1] if decoded.events else None, StopPiece)


@pytest.mark.parametrize("count", ["99999999999999999999999999", "1e30", "-5", "18446744073709551615"])
def test_an_absurd_token_count_is_ignored(count: str) -> None:
    data = b"".join([chunk({"content": "x"}), finish("stop")])
    data += b'data: {"choices":[],"usage":{"prompt_tokens":%s,"completion_tokens":3}}\n\n' % count.encode() + DONE
    decoder = ChatDecoder(Backend("p", ""))
    events = [*decoder.feed(data), *decoder.end()]
    assert decoder.failure is None
    assert isinstance(events[-1], StopPiece)
    (usage,) = [piece.usage for piece in events if isinstance(piece, UsagePiece)]
    assert 0 <= usage.input <= 1 << 50
    assert usage.output == 3
