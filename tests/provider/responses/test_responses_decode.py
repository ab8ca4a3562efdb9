"""The responses decoder: every kind of event in every framing, and streams that no server should send."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from doubles.chat_server import DONE
from doubles.responses_server import (
    added,
    call,
    call_item,
    done,
    end,
    message_item,
    reasoning,
    reasoning_item,
    response,
    sse,
    start,
    text,
    usage,
)
from yarrow.errors import Code, ProviderError
from yarrow.message import StopReason, ToolCall, Usage
from yarrow.provider.backend_errors import Backend
from yarrow.provider.base import CallPiece, OpaquePiece, ProviderEvent, StopPiece, TextPiece, ThinkingPiece, UsagePiece
from yarrow.provider.responses import output
from yarrow.provider.responses.decoder import ResponsesDecoder

WIRE = Path(__file__).parents[2] / "fixtures/wire/responses"
STREAMS = sorted(WIRE.glob("*.jsonl"))
EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


class Decoded:
    """All events of a stream, and why it failed if it did."""

    def __init__(self, pieces: Iterable[bytes], *, chunk_size: int = 0) -> None:
        decoder = ResponsesDecoder(Backend("test"), chunk_size=chunk_size)
        self.events: list[ProviderEvent] = []
        for piece in pieces:
            self.events += decoder.feed(piece)
        self.events += decoder.end()
        self.failure: ProviderError | None = decoder.failure
        self.progress = decoder.progress

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

    def joined(self) -> list[Any]:
        """The events, with adjacent pieces of text or of thinking joined."""
        result: list[Any] = []
        for one in self.events:
            last = result[-1] if result else None
            if isinstance(one, TextPiece) and isinstance(last, TextPiece):
                result[-1] = TextPiece(last.text + one.text)
            elif isinstance(one, ThinkingPiece) and isinstance(last, ThinkingPiece):
                result[-1] = ThinkingPiece(last.text + one.text)
            elif isinstance(one, OpaquePiece):
                result.append(json.loads(one.data))
            else:
                result.append(one)
        return [*result, self.failure.code] if self.failure else result


def decode(*pieces: bytes) -> Decoded:
    return Decoded(pieces)


# -- every event ---------------------------------------------------------------------------------------------------

LINES = {path.stem: path.read_text("utf-8").splitlines() for path in STREAMS}
USED = UsagePiece(Usage(30, 40, cache_read=60, thinking=25))
BOTH = [
    CallPiece(ToolCall("call_a", "read", '{"path":"a.txt"}', opaque='{"id":"fc_call_a"}')),
    CallPiece(ToolCall("call_b", "read", '{"path":"b.txt","depth":1.50}', opaque='{"id":"fc_call_b"}')),
]
LISTS = CallPiece(ToolCall("call_c", "ls", "{}", opaque='{"id":"fc_call_c"}'))
SUMMARY = [{"type": "summary_text", "text": words} for words in ("Two files, then.", "Both at once.")]
THINKS = {"type": "reasoning", "id": "rs_1", "summary": SUMMARY, "encrypted_content": "gAAArs_1=="}
FINAL = [
    TextPiece("Both say 你好 🌍."),
    {"type": "message", "id": "msg_1", "phase": "final_answer"},
    USED,
    StopPiece(StopReason.END_TURN),
]
EXPECTED: dict[str, list[Any]] = {
    "files-1": [
        ThinkingPiece("Two files, then.\n\nBoth at once."),
        THINKS,
        *BOTH,
        USED,
        StopPiece(StopReason.TOOL_USE),
    ],
    "files-2": FINAL,
    "phases-1": [
        {"type": "reasoning", "id": "rs_2", "encrypted_content": "gAAArs_2=="},
        TextPiece("I look into it."),
        {"type": "message", "id": "msg_2", "phase": "commentary"},
        ThinkingPiece("Two files, then.\n\nBoth at once."),
        THINKS,
        LISTS,
        USED,
        StopPiece(StopReason.TOOL_USE),
    ],
    "phases-2": FINAL,
    "refusal-1": [TextPiece("I cannot help with that."), USED, StopPiece(StopReason.END_TURN)],
    "aloud-1": [
        ThinkingPiece("Hm, so."),
        {"type": "reasoning", "id": "rs_9", "content": [{"type": "reasoning_text", "text": "Hm, so."}]},
        LISTS,
        USED,
        StopPiece(StopReason.TOOL_USE),
    ],
    "incomplete": [TextPiece("Once upon"), USED, StopPiece(StopReason.MAX_TOKENS)],
    "failed": [Code.RATE_LIMIT],
    "error": [Code.SERVER_ERROR],
    "others": FINAL,
}


def named(lines: list[str]) -> bytes:
    return "".join(f"event: {json.loads(line)['type']}\ndata: {line}\n\n" for line in lines).encode()


def in_pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def spread(lines: list[str]) -> bytes:
    """Each event over many data lines."""
    whole = [json.dumps(json.loads(line), indent=1, ensure_ascii=False) for line in lines]
    return "".join("".join(f"data: {row}\n" for row in one.splitlines()) + "\n" for one in whole).encode()


def between(lines: list[str]) -> bytes:
    """Comments, other fields and keep-alives between the events, as gateways and web sockets send them."""
    noise = [": ping\n\n", "data: [PING]\n\n", "data:\n\n", 'data: {"type":"keepalive","sequence_number":0}\n\n']
    noise += ["id: 5\nretry: 9\n\n", 'data: {"type":"ping"}\n\n', "data: : ping\n\n", "\n"]
    return "".join(f"data: {line}\n\n{noise[at % len(noise)]}" for at, line in enumerate(lines)).encode()


FRAMINGS: dict[str, Callable[[list[str]], list[bytes]]] = {
    "at once": lambda lines: [named(lines)],
    "by byte": lambda lines: in_pieces(named(lines), 1),
    "by seven": lambda lines: in_pieces(named(lines), 7),
    "CRLF": lambda lines: in_pieces(named(lines).replace(b"\n", b"\r\n"), 11),
    "CR": lambda lines: in_pieces(named(lines).replace(b"\n", b"\r"), 13),
    "without names": lambda lines: ["".join(f"data:{line}\n\n" for line in lines).encode() + DONE],
    "over lines": lambda lines: in_pieces(spread(lines), 64),
    "with noise": lambda lines: in_pieces(b"\xef\xbb\xbf" + between(lines), 5),
}


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("name", LINES)
def test_every_stream_in_every_framing(name: str, framing: str) -> None:
    assert Decoded(FRAMINGS[framing](LINES[name])).joined() == EXPECTED[name]


def test_the_streams_have_every_event_that_the_vendor_knows() -> None:
    events = [json.loads(line) for lines in LINES.values() for line in lines]
    kinds = {type(EVENTS.validate_python(event)) for event in events}
    assert len(kinds) == len(get_args(get_args(ResponseStreamEvent)[0]))


def test_chunk_size_joins_deltas() -> None:
    decoded = Decoded([start(), *in_pieces(text(0, "a", "b", "c", "d"), 40), end()], chunk_size=100)
    assert decoded.events == [TextPiece("abcd"), StopPiece(StopReason.END_TURN)]


@given(st.data())
def test_reads_of_any_size_change_nothing(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(LINES)))
    whole = named(LINES[name])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=9)))
    parts = [whole[before:after] for before, after in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert Decoded(parts).joined() == EXPECTED[name]


# -- how an answer ends --------------------------------------------------------------------------------------------


def test_case_P_10_a_truncated_stream() -> None:
    for pieces in ([start(), text(0, "Half")], [start(), text(0, "Half"), DONE], [start(), text(0, "Half")[:-9]]):
        decoded = decode(*pieces)
        assert decoded.text == "Half"
        assert decoded.failure is not None
        assert (decoded.failure.code, decoded.failure.retryable) == (Code.STREAM_TRUNCATED, True)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("max_output_tokens", StopReason.MAX_TOKENS),
        ("content_filter", StopReason.CONTENT_FILTER),
        ("steered", StopReason.OTHER),
        (None, StopReason.OTHER),
    ],
)
def test_the_reason_of_an_incomplete_answer(reason: str | None, stop: StopReason) -> None:
    for kind in ("incomplete", "completed", "done"):
        whole = response("incomplete", incomplete_details={"reason": reason} if reason else None)
        assert decode(start(), text(0, "x"), sse(f"response.{kind}", response=whole)).stop is stop


@pytest.mark.parametrize(
    ("code", "expected", "retryable"),
    [
        ("server_error", Code.SERVER_ERROR, True),
        ("rate_limit_exceeded", Code.RATE_LIMIT, True),
        ("vector_store_timeout", Code.SERVER_ERROR, True),
        ("server_is_overloaded", Code.OVERLOADED, True),
        ("context_length_exceeded", Code.CONTEXT_OVERFLOW, False),
        ("insufficient_quota", Code.QUOTA, False),
        ("invalid_prompt", Code.CONTENT_FILTER, False),
        ("bio_policy", Code.CONTENT_FILTER, False),
        ("image_content_policy_violation", Code.CONTENT_FILTER, False),
        ("invalid_image", Code.INVALID_REQUEST, False),
        ("failed_to_download_image", Code.INVALID_REQUEST, False),
        (None, Code.SERVER_ERROR, True),
    ],
)
def test_the_code_of_a_failed_response(code: str | None, expected: Code, retryable: bool) -> None:
    failed = end("failed", error={"code": code, "message": "It says why."})
    decoded = decode(start(), text(0, "Part"), failed, text(1, "more"))
    assert decoded.text == "Part"
    assert decoded.failure is not None
    assert (decoded.failure.code, decoded.failure.retryable) == (expected, retryable)
    assert "It says why." in decoded.failure.message


@pytest.mark.parametrize(
    "event",
    [
        sse("error", code="rate_limit_exceeded", message="Slow down.", param=None),
        sse("error", error={"code": "rate_limit_exceeded", "message": "Slow down.", "type": "x"}),
        b'data: {"error":{"code":"rate_limit_exceeded","message":"Slow down."}}\n\n',
    ],
)
def test_the_forms_of_an_error_event(event: bytes) -> None:
    decoded = decode(start(), event)
    assert decoded.failure is not None
    assert decoded.failure.code is Code.RATE_LIMIT
    assert "Slow down." in decoded.failure.message


def test_a_cancelled_response_is_a_failure() -> None:
    for whole in (response("cancelled"), response("failed"), response("completed", error={"message": "no"})):
        decoded = decode(start(), sse("response.completed", response=whole))
        assert decoded.failure is not None
        assert decoded.failure.code is Code.SERVER_ERROR


def test_an_error_that_is_a_text() -> None:
    decoded = decode(start(), end("failed", error="It says why."))
    assert decoded.failure is not None
    assert "It says why." in decoded.failure.message


def test_a_response_that_is_not_streamed() -> None:
    items = [reasoning_item("hm"), message_item("Hi"), call_item("a", "ls", '{"a":1}')]
    decoder = ResponsesDecoder(Backend("test"))
    body = json.dumps(response("completed", items, usage=usage(9, 2, cached=4, written=2))).encode()
    events = [*decoder.take(body), *decoder.end()]
    assert [type(one) for one in events[:3]] == [ThinkingPiece, OpaquePiece, TextPiece]
    assert events[-2:] == [UsagePiece(Usage(3, 2, cache_read=4, cache_write=2)), StopPiece(StopReason.TOOL_USE)]
    unfinished = ResponsesDecoder(Backend("test"))
    unfinished.take(json.dumps(response("queued")).encode())
    unfinished.end()
    assert unfinished.failure is not None
    assert unfinished.failure.code is Code.STREAM_TRUNCATED


# -- calls ---------------------------------------------------------------------------------------------------------

HALF = '{"command":"rm -rf build && ec'


def cut_call(arguments: str, status: str = "completed") -> bytes:
    item = call_item("a", "bash", arguments, status=status)
    return added(0, item | {"arguments": ""}) + done(0, item)


def test_case_P_09_a_call_truncated_by_the_limit_is_dropped() -> None:
    limit = end("incomplete", incomplete_details={"reason": "max_output_tokens"})
    for arguments in (HALF, ""):
        for status in ("completed", "incomplete"):
            assert decode(start(), cut_call(arguments, status), limit).calls == []
    assert decode(start(), call(0, "a", "ls"), limit).calls == [ToolCall("a", "ls")]
    first = decode(start(), call(0, "a", "ls"), call(1, "b", "rm", HALF), limit)
    assert [one.name for one in first.calls] == ["ls"]


def test_a_call_that_the_server_marks_as_incomplete_is_not_run() -> None:
    assert decode(start(), cut_call(HALF, "incomplete"), end()).calls == []


def test_a_complete_answer_keeps_arguments_that_are_no_object() -> None:
    [made] = decode(start(), cut_call(HALF), end()).calls
    assert (made.arguments, made.invalid_arguments) == ("{}", HALF)


def test_arguments_as_an_object_and_a_call_without_an_id() -> None:
    item = call_item("", "ls", item_id="fc_1") | {"arguments": {"p": 1.5}, "call_id": None}
    [made] = decode(start(), added(0, item), done(0, item), end()).calls
    assert made.id.startswith("call_")
    assert made.arguments == '{"p":1.5}'
    nameless = decode(start(), done(0, item | {"name": None}), end())
    assert nameless.failure is not None
    assert nameless.failure.code is Code.MALFORMED_TOOL_CALL


def test_calls_with_the_same_id_are_two_calls() -> None:
    items = [call_item("0", "ls"), call_item("0", "rm")]
    for last in (end(), end(output=items)):
        decoded = decode(start(), call(0, "0", "ls"), call(1, "0", "rm"), last)
        assert [one.name for one in decoded.calls] == ["ls", "rm"]
        assert len({one.id for one in decoded.calls}) == 2


def test_parallel_calls_whose_fragments_alternate() -> None:
    items = [call_item(name, "ls", f'{{"p":"{name}"}}') for name in "ab"]
    begun = [added(at, item | {"arguments": ""}) for at, item in enumerate(items)]
    rows = zip(items[0]["arguments"], items[1]["arguments"], strict=True)
    deltas = [
        sse("response.function_call_arguments.delta", item_id=item["id"], output_index=at, delta=letter)
        for pair in rows
        for at, (item, letter) in enumerate(zip(items, pair, strict=True))
    ]
    finished = [done(at, item) for at, item in enumerate(items)]
    for closed in (finished, finished[::-1], []):
        calls = decode(start(), *begun, *deltas, *closed, end(output=items)).calls
        assert sorted((one.id, one.arguments) for one in calls) == [("a", '{"p":"a"}'), ("b", '{"p":"b"}')]


# -- streams that no server should send ----------------------------------------------------------------------------


def stripped(data: bytes, *names: str) -> bytes:
    """The events without some of their fields, at any depth."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: strip(one) for name, one in value.items() if name not in names}
        return [strip(one) for one in value] if isinstance(value, list) else value

    rows = [json.loads(row[6:]) for row in data.decode().splitlines() if row.startswith("data: ")]
    return b"".join(b"data: " + json.dumps(strip(row)).encode() + b"\n\n" for row in rows)


WHOLE = b"".join([start(), reasoning(0, "hm", "so"), text(1, "I ", "look."), call(2, "a", "ls", '{"p":', "1}")])
ITEMS = [reasoning_item("hm", "so"), message_item("I look."), call_item("a", "ls", '{"p":1}')]
SAID = ("hm\n\nso", "I look.", [("ls", '{"p":1}')], StopReason.TOOL_USE)


def what(decoded: Decoded) -> Any:
    return (
        decoded.thinking,
        decoded.text,
        [(one.name, one.arguments) for one in decoded.calls],
        decoded.stop,
    )


def test_servers_that_leave_out_ids_or_indexes() -> None:
    for names in (["item_id"], ["output_index"], ["item_id", "output_index"], ["id"], ["id", "item_id"]):
        assert what(decode(stripped(WHOLE + end(output=ITEMS), *names))) == SAID, names
        assert what(decode(stripped(WHOLE + end(), *names))) == SAID, names
    bare = ["id", "item_id", "output_index", "summary_index", "content_index", "sequence_number", "status"]
    assert what(decode(stripped(WHOLE + end(), *bare)))[1:] == SAID[1:]


def test_an_id_that_is_another_one_in_each_event() -> None:
    rows = [json.loads(row[6:]) for row in (WHOLE + end(output=ITEMS)).decode().splitlines() if row[:5] == "data:"]
    for number, row in enumerate(rows):
        for holder in (row, row.get("item", {}), *row.get("response", {}).get("output", [])):
            for name in ("id", "item_id"):
                if name in holder:
                    holder[name] = f"opaque+/{number}=="
    assert what(decode(*(b"data: " + json.dumps(row).encode() + b"\n\n" for row in rows))) == SAID


def test_all_items_with_the_same_index() -> None:
    again = WHOLE.replace(b'"output_index": 1', b'"output_index": 0').replace(
        b'"output_index": 2', b'"output_index": 0'
    )
    assert what(decode(again, end(output=ITEMS))) == SAID


def test_only_the_last_event_has_the_answer() -> None:
    assert what(decode(start(), end(output=ITEMS))) == SAID
    assert what(decode(start(), *(done(at, item) for at, item in enumerate(ITEMS)), end())) == SAID
    assert what(decode(start(), text(0, "I look."), end(output=ITEMS)))[1:] == SAID[1:]


def test_deltas_without_an_item_and_an_item_that_begins_after_them() -> None:
    delta = sse("response.output_text.delta", delta="Hi", output_index=0)
    assert decode(delta, end()).text == "Hi"
    assert decode(delta, text(0, " you"), end()).text == "Hi you"
    assert decode(sse("response.output_text.done", text="Hi"), end()).text == "Hi"
    assert decode(sse("response.function_call_arguments.delta", delta="{}"), end()).failure is not None


def test_repeated_events_are_not_repeated_text() -> None:
    rows = [one + b"\n\n" for one in WHOLE.split(b"\n\n") if one]
    twice = [row for row in rows for _ in range(1 if b".delta" in row else 2)]
    assert what(decode(*twice, end(output=ITEMS), end(output=ITEMS))) == SAID


def test_deltas_after_the_end_of_their_item_are_ignored() -> None:
    late = sse("response.output_text.delta", item_id="msg_1", output_index=0, content_index=0, delta="late")
    assert decode(start(), text(0, "Hi"), late, end()).text == "Hi"


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"type":"response.output_item.done","item":{"type":"message","content":5}}\n\n',
        b'data: {"type":"response.completed","response":[]}\n\n',
        b'data: {"type":"response.output_text.delta","delta":"x"\n\n',
        b'data: {"type":["response.completed"]}\n\n',
    ],
)
def test_broken_events_are_an_error(event: bytes) -> None:
    decoded = decode(start(), event)
    assert decoded.failure is not None
    assert (decoded.failure.code, decoded.failure.retryable) == (Code.MALFORMED_RESPONSE, True)


@pytest.mark.parametrize(
    "event",
    [
        sse("response.output_text.delta", delta={"text": "x"}),
        sse("response.output_text.delta", delta=None),
        sse("response.output_item.done", item=None),
        sse("response.output_item.added", item={"type": "computer_call", "action": {"type": "x"}, "content": 5}),
        sse("response.output_item.added"),
        sse("response.metadata.changed", response="x", item=[], delta=5),
        sse("codex.rate_limits", rate_limits={"primary": {}}),
        b"data: keep-alive\n\n",
        b"data: null\n\n",
    ],
)
def test_events_that_say_nothing_are_ignored(event: bytes) -> None:
    decoded = decode(start(), event, text(0, "Hi"), event, end(output=[message_item("Hi")]))
    assert decoded.events == [TextPiece("Hi"), StopPiece(StopReason.END_TURN)]


def test_bytes_that_are_no_utf_8_and_lone_surrogates() -> None:
    broken = text(0, "a\ud83cb".encode("utf-8", "surrogatepass").decode("utf-8", "replace"))
    assert decode(start(), broken.replace(b"a", b"\xffa", 1), end()).failure is None
    lone = reasoning(0, "hm").replace(b"ZW5j", b"\\ud83c")
    decoded = decode(start(), lone, text(1, "Hi"), end())
    assert decoded.text == "Hi"
    assert decoded.failure is None


def test_an_endless_number_of_items_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "MAX_ITEMS", 3)
    decoded = decode(*(text(at, "x", item_id=f"msg_{at}") for at in range(4)), end())
    assert decoded.failure is not None
    assert decoded.failure.code is Code.MALFORMED_RESPONSE


def test_heartbeats_are_no_progress() -> None:
    before = decode(start(), text(0, "x"), end()).progress
    beats = sse("keepalive") + sse("response.in_progress", response=response("in_progress"))
    assert decode(start(), text(0, "x"), *[beats] * 9, end()).progress == before


@given(st.lists(st.sampled_from([*WHOLE.split(b"\n\n"), *end(output=ITEMS).split(b"\n\n"), b"data: {}"]), max_size=40))
def test_any_order_of_events_ends_or_fails(rows: list[bytes]) -> None:
    decoded = decode(*(row + b"\n\n" for row in rows))
    assert (decoded.failure is None) == any(isinstance(one, StopPiece) for one in decoded.events)
    assert len({one.id for one in decoded.calls}) == len(decoded.calls)
