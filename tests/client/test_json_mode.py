"""JSON mode through a real channel, and its lines held against the protobuf library for every kind of event."""

import asyncio
import json
from typing import Any

import grpc
import pytest
from client.fake_service import SESSION, FakeService, Tape, connected, event, number, turn, whole
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yarrow.client import json_mode
from yarrow.client.json_mode import EventEncoder
from yarrow.client.run_stream import RunResult
from yarrow.v1 import agent_pb2 as pb


async def run(service: FakeService, out: Tape) -> RunResult:
    async with connected(service) as stub:
        return await json_mode.run_json(stub, SESSION, pb.PromptRequest(text="hi"), out=out)


async def test_a_header_and_then_every_event() -> None:
    out = Tape()
    assert await run(FakeService(*whole(*turn("m1", "hi"))), out) == RunResult("s1", "COMPLETED")
    place = {"sessionId": "s1", "runId": "r1"}
    assert [json.loads(line) for line in out.lines] == [
        {
            "type": "header",
            "sessionId": "s1",
            "cwd": "/work",
            "provider": "scripted",
            "model": "m",
            "versions": {"service": "9.9", "protocol": "yarrow.v1"},
            "schemaVersion": 1,
        },
        {**place, "sequence": "1", "time": at(1), "agentStart": {"text": "hi", "messageId": "u1"}},
        {**place, "sequence": "2", "time": at(2), "turnStart": {"turn": 1}},
        {**place, "sequence": "3", "time": at(3), "messageStart": {"messageId": "m1"}},
        {**place, "sequence": "4", "time": at(4), "textDelta": {"text": "hi"}},
        {
            **place,
            "sequence": "5",
            "time": at(5),
            "messageEnd": {"messageId": "m1", "stopReason": "STOP_REASON_END_TURN"},
        },
        {**place, "sequence": "6", "time": at(6), "turnEnd": {"turn": 1}},
        {**place, "sequence": "7", "time": at(7), "agentEnd": {"reason": "END_REASON_COMPLETED"}},
    ]


def at(_sequence: int) -> str:
    # Events that are numbered afterwards keep the time they were made with.
    return "2026-09-21T14:13:20.001Z"


async def test_an_error_is_an_event_and_the_outcome() -> None:
    error = pb.Error(code="INVALID_REQUEST", message="bad model", retryable=False)
    out = Tape()
    outcome = await run(FakeService(*whole(reason=pb.END_REASON_ERROR, error=error)), out)
    assert outcome == RunResult("s1", "ERROR", "INVALID_REQUEST", "bad model")
    end = json.loads(out.lines[-1])["agentEnd"]
    assert end == {"reason": "END_REASON_ERROR", "error": {"code": "INVALID_REQUEST", "message": "bad model"}}


async def test_a_gap_is_printed_and_a_heartbeat_is_not() -> None:
    out = Tape()
    events = whole(event("gap", first_sequence=2, last_sequence=9), event("heartbeat"))
    await run(FakeService(*events), out)
    lines = [json.loads(line) for line in out.lines]
    assert lines[3]["gap"] == {"firstSequence": "2", "lastSequence": "9"}
    assert "sequence" not in lines[3]
    assert not [line for line in lines if "heartbeat" in line]


@pytest.mark.parametrize("breaks", ["\n", "\r\n", "\u2028", "\x85", "\x0b", "\x1c", "\x00", "\U0001f600", '"\\'])
async def test_case_C_03_each_line_is_one_object(breaks: str) -> None:
    """Whatever a reader takes for the end of a line, and whatever a model or a tool says."""
    out = Tape()
    said = f"a{breaks}b"
    outputs = [event("tool_output", tool_call_id="c", name="bash", text=said, message_id="t1")]
    await run(FakeService(*whole(*turn("m1", said), *outputs)), out)
    lines = [json.loads(line) for line in out.text.splitlines()]
    assert [line["textDelta"]["text"] for line in lines if "textDelta" in line] == [said]
    assert [line["toolOutput"]["text"] for line in lines if "toolOutput" in line] == [said]


@pytest.mark.parametrize("character", ["\x1b", "\x9b", "\u202e", "\u200b", "\ufeff", "\U000e0041"])
async def test_case_U_04_a_line_cannot_control_a_terminal(character: str) -> None:
    out = Tape(is_terminal=True)
    await run(FakeService(*whole(*turn("m1", character))), out)
    assert character not in out.text
    assert json.loads(out.lines[4])["textDelta"]["text"] == character


async def test_a_full_output_is_waited_for() -> None:
    out = Tape()
    out.room.clear()
    service = FakeService(*whole(*turn("m1", *["x"] * 2000)))
    running = asyncio.create_task(run(service, out))
    await out.until(lambda: out.drains > 0)
    assert service.played < 1000
    out.room.set()
    await running
    assert len(out.lines) == 1 + 2006


async def test_a_rejected_prompt_prints_only_the_header() -> None:
    service = FakeService()
    service.refused, service.refusal = {"Prompt"}, (grpc.StatusCode.FAILED_PRECONDITION, "it runs", "BUSY")
    out = Tape()
    with pytest.raises(grpc.aio.AioRpcError):
        await run(service, out)
    assert [json.loads(line)["type"] for line in out.lines] == ["header"]


# ---- exactness ----

KINDS = [field.name for field in pb.AgentEvent.DESCRIPTOR.oneofs_by_name["event"].fields]
_SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.sampled_from(["\u2028", '"\\/', "\x1b[0m", "\U0001f469\u200d\U0001f469", "\x7f\x85"]),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: st.integers(0, 2**64 - 1),
    FieldDescriptor.TYPE_DOUBLE: st.floats(allow_nan=False, allow_infinity=False),
}


def _scalar(field: Any) -> st.SearchStrategy[Any]:
    if field.enum_type is None:
        return _SCALARS[field.type]
    # An enum may hold a number that only a newer service knows.
    return st.sampled_from([*field.enum_type.values_by_number, 999])


def fill(message: Any, data: st.DataObject) -> Any:
    """Set some of a message's fields, and those of the messages in it."""
    for field in message.DESCRIPTOR.fields:
        if not data.draw(st.booleans()):
            continue
        for _ in range(data.draw(st.integers(1, 2)) if field.is_repeated else 1):
            if field.message_type:
                inner = getattr(message, field.name)
                fill(inner.add() if field.is_repeated else inner, data)
                if not field.is_repeated:
                    inner.SetInParent()
            else:
                setattr(message, field.name, data.draw(_scalar(field)))
    return message


@pytest.mark.parametrize("kind", [*KINDS, ""])
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_line_equals_the_protobuf_librarys_json(kind: str, data: st.DataObject) -> None:
    made = pb.AgentEvent(
        session_id=data.draw(st.sampled_from(["", "s1", 'odd"é'])),
        run_id=data.draw(st.sampled_from(["", "r1"])),
        sequence=data.draw(st.integers(0, 2**64 - 1)),
    )
    if data.draw(st.booleans()):
        made.time.seconds = data.draw(st.integers(-62135596800, 253402300799))
        made.time.nanos = data.draw(st.sampled_from([0, 1, 999_999_999, 1_000, 120_000_000, 123_456_000]))
    if kind:
        fill(getattr(made, kind), data)
        getattr(made, kind).SetInParent()
    encoder = EventEncoder()
    expected = json.loads(json_format.MessageToJson(made))
    assert json.loads(encoder.encode(made, kind)) == expected
    # Repeated values are cached, and must be cached correctly.
    assert json.loads(encoder.encode(made, kind)) == expected
    assert list(json.loads(encoder.encode(made, kind))) == list(expected)


def test_changed_ids_and_seconds_are_encoded() -> None:
    encoder = EventEncoder()
    events = number(event("turn_end"), event("turn_end"), event("turn_end"))
    events[1].run_id, events[2].session_id = "r2", "s2"
    events[1].time.seconds += 1
    for each in events:
        assert json.loads(encoder.encode(each, "turn_end")) == json.loads(json_format.MessageToJson(each))
