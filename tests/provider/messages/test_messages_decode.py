"""The messages decoder: captured streams at every chunk size, public bug cases, laws."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doubles.messages_server import block, call, end, event, sse, start, text, thinking
from yarrow.errors import Code, ProviderError
from yarrow.message import StopReason, ToolCall, Usage
from yarrow.provider.backend_errors import Backend
from yarrow.provider.base import CallPiece, OpaquePiece, ProviderEvent, StopPiece, TextPiece, ThinkingPiece, UsagePiece
from yarrow.provider.messages.decoder import MessagesDecoder

CAPTURES = sorted((Path(__file__).parents[2] / "fixtures/wire/messages-style/captures").glob("*.sse"))
SPEAKER = Backend("test")


class Decoded:
    """All events of a stream, and why it failed if it did."""

    def __init__(self, pieces: Iterable[bytes], *, chunk_size: int = 0) -> None:
        decoder = MessagesDecoder(SPEAKER, chunk_size=chunk_size)
        self.events: list[ProviderEvent] = []
        for piece in pieces:
            self.events += decoder.feed(piece)
        self.events += decoder.end()
        self.failure: ProviderError | None = decoder.failure

    @property
    def calls(self) -> list[ToolCall]:
        return [one.call for one in self.events if isinstance(one, CallPiece)]

    @property
    def stop(self) -> StopReason:
        [only] = [one.reason for one in self.events if isinstance(one, StopPiece)]
        assert self.events[-1] == StopPiece(only)
        return only

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
                    pass
        if self.failure is not None:
            code = self.failure.code.lower()
            result.append({"kind": "error", "code": code, "retryable": self.failure.retryable})
        return result


def _join(result: list[dict[str, Any]], kind: str, words: str) -> None:
    assert words
    if result and result[-1]["kind"] == kind:
        result[-1]["text"] += words
    else:
        result.append({"kind": kind, "text": words})


def decode(*pieces: bytes) -> Decoded:
    return Decoded(pieces)


def in_pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)] if size else [data]


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_recordings_at_every_chunk_size(capture: Path) -> None:
    data = capture.read_bytes()
    expected = json.loads(capture.with_suffix(".expected.json").read_text("utf-8"))
    wanted: list[dict[str, Any]] = expected["events"]
    for size in [*expected["chunk_sizes"], *range(4, 40)]:
        got = Decoded(in_pieces(data, size)).normalized()
        for one in wanted:
            if one["kind"] == "error" and (message := one.pop("message", "*")) != "*":
                failure = Decoded([data]).failure
                assert failure is not None
                assert message in failure.message
        assert got == wanted, size


def test_recordings_exist() -> None:
    assert len(CAPTURES) == 8


# -- public bug cases ----------------------------------------------------------------------------------------------


def test_case_P_04_a_call_without_arguments() -> None:
    for fragments in ((), ("",), ("  ",)):
        decoded = decode(start(), call(0, "a", "list_tasks", *fragments), end("tool_use"))
        assert decoded.calls == [ToolCall("a", "list_tasks", "{}")]


def test_case_P_05_characters_split_by_a_read() -> None:
    data = start() + text(0, "你好🌍") + end()
    for size in range(1, 9):
        events = Decoded(in_pieces(data, size)).events
        assert "".join(one.text for one in events if isinstance(one, TextPiece)) == "你好🌍"


def test_case_P_08_an_error_inside_the_stream() -> None:
    broken = sse("error", error={"type": "overloaded_error", "message": "Overloaded"})
    decoded = decode(start(), text(0, "Part"), broken, text(1, "more"), end())
    assert decoded.events == [TextPiece("Part")]
    assert decoded.failure is not None
    assert (decoded.failure.code, decoded.failure.retryable) == (Code.OVERLOADED, True)
    assert "Overloaded" in decoded.failure.message


HALF = '{"command":"rm -rf build && ec'


def test_case_P_09_a_call_truncated_by_the_limit_is_dropped() -> None:
    cut = decode(start(), text(0, "x"), call(1, "a", "bash", HALF), end("max_tokens"))
    assert (cut.calls, cut.stop) == ([], StopReason.MAX_TOKENS)
    labelled = decode(start(), call(0, "a", "bash", HALF), end("tool_use"))
    assert labelled.calls == [ToolCall("a", "bash", invalid_arguments=HALF)]


def test_only_the_last_call_without_arguments_is_dropped_at_the_limit() -> None:
    cut = decode(start(), call(0, "a", "ls"), call(1, "b", "rm"), end("max_tokens"))
    assert cut.calls == [ToolCall("a", "ls")]
    assert cut.stop is StopReason.MAX_TOKENS


def test_a_complete_call_before_the_limit_stays() -> None:
    decoded = decode(start(), call(0, "a", "ls", '{"a":', "1}"), end("max_tokens"))
    assert decoded.calls == [ToolCall("a", "ls", '{"a":1}')]


def test_case_P_10_a_stream_that_ends_regularly_but_too_early() -> None:
    decoded = decode(start(), text(0, "The answer is"))
    assert decoded.events == [TextPiece("The answer is")]
    assert decoded.failure is not None
    assert (decoded.failure.code, decoded.failure.retryable) == (Code.STREAM_TRUNCATED, True)


def test_a_stop_reason_is_enough() -> None:
    for rest in (b"", b"event: message_stop\ndata: {"):
        decoded = decode(start(), text(0, "4"), sse("message_delta", delta={"stop_reason": "end_turn"}), rest)
        assert (decoded.stop, decoded.failure) == (StopReason.END_TURN, None)


def test_the_done_marker_of_a_gateway() -> None:
    stopped = end().removesuffix(sse("message_stop"))
    assert decode(start(), text(0, "4"), stopped, b"data: [DONE]\n\n").stop is StopReason.END_TURN


def test_a_done_marker_without_a_stop_reason_is_truncated() -> None:
    decoded = decode(start(), text(0, "4"), sse("message_stop"))
    assert decoded.failure is not None
    assert decoded.failure.code is Code.STREAM_TRUNCATED


@pytest.mark.parametrize(
    ("reason", "stop", "with_a_call"),
    [
        ("end_turn", StopReason.END_TURN, StopReason.TOOL_USE),
        ("tool_use", StopReason.END_TURN, StopReason.TOOL_USE),
        ("stop_sequence", StopReason.STOP_SEQUENCE, StopReason.TOOL_USE),
        ("pause_turn", StopReason.PAUSE, StopReason.TOOL_USE),  # P-26
        ("max_tokens", StopReason.MAX_TOKENS, StopReason.MAX_TOKENS),
        ("refusal", StopReason.CONTENT_FILTER, StopReason.CONTENT_FILTER),
        ("model_context_window_exceeded", StopReason.CONTEXT_WINDOW, StopReason.CONTEXT_WINDOW),
        ("a_new_one", StopReason.OTHER, StopReason.OTHER),
    ],
)
def test_stop_reasons(reason: str, stop: StopReason, with_a_call: StopReason) -> None:
    assert decode(start(), text(0, "x"), end(reason)).stop is stop
    assert decode(start(), call(0, "a", "ls", "{}"), end(reason)).stop is with_a_call


def test_case_P_27_the_first_stop_reason_counts_and_the_last_usage() -> None:
    again = sse("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 7})
    stopped = sse("message_delta", delta={"stop_reason": "stop_sequence"}, usage={"output_tokens": 5})
    decoded = decode(start(), text(0, "x"), stopped, again, sse("message_stop"))
    assert decoded.stop is StopReason.STOP_SEQUENCE
    assert UsagePiece(Usage(9, 7)) in decoded.events


# -- thinking ------------------------------------------------------------------------------------------------------

SIGNED = '{"signature":"c2ln"}'


def test_a_signature_is_yielded_with_the_end_of_its_thinking() -> None:
    pieces = [start(), *in_pieces(thinking(0, "a", "b", "c"), 60), text(1, "x"), end()]
    thoughts = [one for one in decode(*pieces).events if isinstance(one, ThinkingPiece)]
    assert "".join(one.text for one in thoughts) == "abc"
    assert len(thoughts) > 1
    assert [one.opaque for one in thoughts] == [""] * (len(thoughts) - 1) + [SIGNED]


def test_redacted_thinking_is_kept_as_opaque() -> None:
    decoded = decode(start(), thinking(0), text(1, "x"), end())
    assert decoded.events[0] == OpaquePiece('{"type":"thinking","thinking":"","signature":"c2ln"}')


def test_thinking_without_a_signature() -> None:
    decoded = decode(start(), thinking(0, "hm", signature=""), text(1, "x"), end())
    assert decoded.events[0] == ThinkingPiece("hm")


def test_two_thinking_blocks_stay_separate() -> None:
    decoded = decode(start(), thinking(0, "a", signature="S1"), thinking(1, "b", signature="S2"), text(2, "x"), end())
    assert decoded.events[:3] == [
        ThinkingPiece("a", '{"signature":"S1"}'),
        OpaquePiece('{"type":"apart"}'),
        ThinkingPiece("b", '{"signature":"S2"}'),
    ]


def test_truncated_thinking_is_yielded() -> None:
    decoded = decode(start(), thinking(0, "a", "b").replace(sse("content_block_stop", index=0), b"")[:-90])
    assert decoded.events == [ThinkingPiece("a"), ThinkingPiece("b")]
    assert decoded.failure is not None


# -- servers that are not quite like it ----------------------------------------------------------------------------


def test_arguments_in_one_piece() -> None:
    begin = {"type": "tool_use", "id": "a", "name": "ls", "input": {"path": "x", "n": 1.50}}
    assert decode(start(), block(0, begin), end("tool_use")).calls == [ToolCall("a", "ls", '{"path": "x", "n": 1.5}')]


def test_missing_or_repeated_ids_are_replaced() -> None:
    decoded = decode(start(), call(0, "", "ls"), call(1, "a", "ls"), call(2, "a", "ls"), end("tool_use"))
    ids = [one.id for one in decoded.calls]
    assert ids[1] == "a"
    assert all(ids)
    assert len(set(ids)) == 3


def test_a_call_without_a_name_is_an_error() -> None:
    decoded = decode(start(), call(0, "a", "", "{}"), end("tool_use"))
    assert decoded.failure is not None
    assert decoded.failure.code is Code.MALFORMED_TOOL_CALL


def test_blocks_without_an_end() -> None:
    data = (start() + thinking(0, "t") + call(1, "a", "ls", "{}") + text(2, "x") + end()).split(b"\n\n")
    decoded = decode(b"\n\n".join(part for part in data if b"content_block_stop" not in part))
    assert decoded.events[:3] == [ThinkingPiece("t", SIGNED), CallPiece(ToolCall("a", "ls")), TextPiece("x")]


def test_a_message_that_was_not_streamed() -> None:
    content = [
        {"type": "thinking", "thinking": "t", "signature": "c2ln"},
        {"type": "text", "text": "x"},
        {"type": "tool_use", "id": "a", "name": "ls", "input": {"n": 1}},
    ]
    usage = {"input_tokens": 4, "output_tokens": 1}
    body = {"type": "message", "role": "assistant", "content": content, "stop_reason": "tool_use", "usage": usage}
    decoder = MessagesDecoder(SPEAKER)
    assert [*decoder.take(json.dumps(body).encode()), *decoder.end()] == [
        ThinkingPiece("t", SIGNED),
        TextPiece("x"),
        CallPiece(ToolCall("a", "ls", '{"n": 1}')),
        UsagePiece(Usage(4, 1)),
        StopPiece(StopReason.TOOL_USE),
    ]


def test_lone_surrogates_and_invalid_utf8() -> None:
    half = event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "HERE"}})
    for bad in (b"\\ud83c", b"\xff"):
        opened = text(0).replace(sse("content_block_stop", index=0), b"")
        decoded = decode(start(), opened, half.replace(b"HERE", bad), end())
        assert decoded.events[0] == TextPiece("\ufffd")


def test_an_unexpected_event_is_an_error_that_quotes_it() -> None:
    decoded = decode(b"data: <html>\n\n")
    assert decoded.failure is not None
    assert (decoded.failure.code, decoded.failure.retryable) == (Code.MALFORMED_RESPONSE, True)
    assert "<html>" in decoded.failure.message


def test_nonsensical_counts_are_ignored() -> None:
    decoded = decode(start(-5, cache_read_input_tokens=10**30), text(0, "x"), end(output=3))
    assert UsagePiece(Usage(0, 3, cache_read=1 << 50)) in decoded.events


def test_too_many_calls_in_one_answer_are_an_error() -> None:
    decoded = decode(start(), *(call(at, f"c{at}", "ls") for at in range(300)), end("tool_use"))
    assert len(decoded.calls) == 256
    assert decoded.failure is not None
    assert decoded.failure.code is Code.MALFORMED_TOOL_CALL


def test_too_long_arguments_are_an_error() -> None:
    decoded = Decoded([start(), *in_pieces(call(0, "a", "w", *["x" * 2**20] * 17), 2**20)])
    assert decoded.failure is not None
    assert decoded.failure.code is Code.MALFORMED_TOOL_CALL


# -- laws ----------------------------------------------------------------------------------------------------------

words = st.lists(st.sampled_from(["a", "é", "🌍", "\u2028", "\r\n", "data:", '"', " "]), min_size=1, max_size=3)
parts = st.one_of(
    st.builds(lambda at: text(0, *at), words),
    st.builds(lambda at: thinking(0, *at), words),
    st.builds(lambda at: thinking(0, *at, signature=""), words),
    st.just(thinking(0)),
    st.just(block(0, {"type": "redacted_thinking", "data": "ZW5j"})),
    st.just(block(0, {"type": "future_block"}, {"type": "text_delta", "text": "no"})),
    st.builds(lambda n: call(0, f"c{n}", "ls", '{"n":', f"{n}}}"), st.integers(0, 3)),
    st.just(sse("ping")),
)


@given(st.lists(parts, max_size=6), st.sampled_from(["end_turn", "tool_use"]), st.integers(1, 200), st.integers(0, 9))
def test_chunk_boundaries_change_nothing(blocks: list[bytes], reason: str, size: int, chunk_size: int) -> None:
    data = start() + b"".join(blocks) + end(reason)
    whole, cut = Decoded([data]), Decoded(in_pieces(data, size), chunk_size=chunk_size)
    assert _stored(whole) == _stored(cut)
    assert whole.failure is cut.failure is None


@given(st.lists(parts, max_size=4), st.data())
def test_a_truncated_stream_never_ends_successfully(blocks: list[bytes], data: st.DataObject) -> None:
    whole = start() + b"".join(blocks) + sse("message_delta", delta={"stop_reason": "end_turn"})
    short = data.draw(st.integers(0, whole.rindex(b'"stop_reason"')))
    decoded = decode(whole[:short])
    assert decoded.failure is not None
    assert not any(isinstance(one, StopPiece) for one in decoded.events)


def _stored(decoded: Decoded) -> list[object]:
    """The blocks as a session joins them."""
    blocks: list[object] = []
    for one in decoded.events:
        last = blocks[-1] if blocks else None
        if isinstance(one, TextPiece) and isinstance(last, TextPiece):
            blocks[-1] = TextPiece(last.text + one.text)
        elif isinstance(one, ThinkingPiece) and isinstance(last, ThinkingPiece):
            blocks[-1] = ThinkingPiece(last.text + one.text, one.opaque or last.opaque)
        elif isinstance(one, CallPiece) and one.call.id.startswith("call_"):
            blocks.append(one.call.arguments)
        else:
            blocks.append(one)
    return blocks
