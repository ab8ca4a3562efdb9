"""Every event as clients see it: the pinned names, and values that come through whole."""

import json
from typing import Any

import pytest
from google.protobuf.json_format import MessageToJson

from yarrow.errors import Code, Failure
from yarrow.event import events as ev
from yarrow.message import Image, Message, Opaque, Role, StopReason, Text, Thinking, ToolCall, Usage
from yarrow.service import translation
from yarrow.service.translation import to_event
from yarrow.v1 import agent_pb2 as pb

USAGE = Usage(1, 2, 3, 4)
FAILURE = Failure(Code.CONTEXT_OVERFLOW, "too long", True, 8000)
QUEUED = ev.QueuedText("m1", "do", True)
WIRE_USAGE = {"input": "1", "output": "2", "cacheRead": "3", "cacheWrite": "4"}
WIRE_ERROR = {"code": "CONTEXT_OVERFLOW", "message": "too long", "retryable": True, "contextWindow": "8000"}
WIRE_QUEUED = {"messageId": "m1", "text": "do", "followUp": True}

CASES: list[tuple[ev.Body, str, dict[str, Any]]] = [
    (ev.AgentStart("hi", "m"), "agentStart", {"text": "hi", "messageId": "m"}),
    (ev.TurnStart(1, (QUEUED,)), "turnStart", {"turn": 1, "delivered": [WIRE_QUEUED]}),
    (ev.MessageStart("m"), "messageStart", {"messageId": "m"}),
    (ev.TextDelta("x"), "textDelta", {"text": "x"}),
    (ev.ThinkingDelta("x"), "thinkingDelta", {"text": "x"}),
    (
        ev.ToolCallEvent("c", "ls", "{}", "{bad"),
        "toolCall",
        {"id": "c", "name": "ls", "argumentsJson": "{}", "invalidArguments": "{bad"},
    ),
    (
        ev.MessageEnd("m", StopReason.MAX_TOKENS, USAGE, FAILURE),
        "messageEnd",
        {"messageId": "m", "stopReason": "STOP_REASON_MAX_TOKENS", "usage": WIRE_USAGE, "error": WIRE_ERROR},
    ),
    (ev.ToolDelta("c", "x"), "toolDelta", {"toolCallId": "c", "text": "x"}),
    (
        ev.ToolOutput("c", "ls", "out", "m", True, "diff"),
        "toolOutput",
        {"toolCallId": "c", "name": "ls", "text": "out", "isError": True, "diff": "diff", "messageId": "m"},
    ),
    (ev.TurnEnd(1), "turnEnd", {"turn": 1}),
    (
        ev.AgentEnd(ev.EndReason.ERROR, USAGE, FAILURE, (QUEUED,)),
        "agentEnd",
        {"reason": "END_REASON_ERROR", "usage": WIRE_USAGE, "error": WIRE_ERROR, "undelivered": [WIRE_QUEUED]},
    ),
    (
        ev.StateChange(ev.AgentState.IDLE, ev.AgentState.THINKING),
        "stateChange",
        {"from": "AGENT_STATE_IDLE", "to": "AGENT_STATE_THINKING"},
    ),
    (ev.QueueUpdate((QUEUED,), (QUEUED,)), "queueUpdate", {"steering": [WIRE_QUEUED], "followUps": [WIRE_QUEUED]}),
    (ev.CompactionStart("overflow", 9), "compactionStart", {"reason": "overflow", "tokensBefore": "9"}),
    (ev.CompactionEnd(4, "notes"), "compactionEnd", {"tokensAfter": "4", "summary": "notes"}),
    (ev.UsageReport(USAGE), "usage", WIRE_USAGE),
    (
        ev.RetryScheduled(2, 2.5, Code.OVERLOADED, "busy"),
        "retryScheduled",
        {"attempt": 2, "delay": 2.5, "code": "OVERLOADED", "message": "busy"},
    ),
    (
        ev.ModelChanged("b", "m2", "a", "m1", Code.OVERLOADED),
        "modelChanged",
        {"provider": "b", "model": "m2", "fromProvider": "a", "fromModel": "m1", "code": "OVERLOADED"},
    ),
    (ev.Notice("X", "y"), "notice", {"code": "X", "text": "y"}),
    (
        ev.PermissionRequest("q", "c", "bash", '{"command": "ls"}', "the rule says to ask", contained=True),
        "permissionRequest",
        {
            "requestId": "q",
            "toolCallId": "c",
            "tool": "bash",
            "argumentsJson": '{"command": "ls"}',
            "reason": "the rule says to ask",
            "contained": True,
        },
    ),
    (
        ev.PermissionSettled("q", "always", "person"),
        "permissionSettled",
        {"requestId": "q", "answer": "PERMISSION_ANSWER_ALWAYS", "by": "person"},
    ),
    (ev.Gap(1, 5), "gap", {"firstSequence": "1", "lastSequence": "5"}),
    (ev.Heartbeat(), "heartbeat", {}),
]


@pytest.mark.parametrize(("body", "key", "value"), CASES, ids=[key for _, key, _ in CASES])
def test_each_kind_of_event(body: ev.Body, key: str, value: dict[str, Any]) -> None:
    event = to_event(ev.Event("s", "r", 7, 1_700_000_000.5, body))
    assert json.loads(MessageToJson(event)) == {
        "sessionId": "s", "runId": "r", "sequence": "7", "time": "2023-11-14T22:13:20.500Z", key: value,
    }  # fmt: skip


def test_there_is_a_case_for_every_kind() -> None:
    kinds = {type(body) for body, _, _ in CASES}
    assert kinds == set(ev.Body.__args__)  # type: ignore[attr-defined]


def test_a_message_with_every_block() -> None:
    blocks = (Text("t"), Thinking("h"), ToolCall("c", "n", '{"a": 1}', "x"), Image("image/png", "AAE="), Opaque("{}"))
    message = translation.to_message(
        Message(id="m", role=Role.ASSISTANT, content=blocks, timestamp="2023-11-14T22:13:20.500Z", usage=USAGE)
    )
    assert [block.WhichOneof("block") for block in message.content] == [
        "text", "thinking", "tool_call", "image", "opaque",
    ]  # fmt: skip
    assert message.content[3].image == pb.Image(media_type="image/png", data=b"\0\1")
    assert message.usage.cache_write == 4


def test_every_enum_value_has_its_own_number() -> None:
    for table in (
        translation.STATES, translation.END_REASONS, translation.STOP_REASONS, translation.ROLES, translation.THINKING,
    ):  # fmt: skip
        kind = type(next(iter(table)))
        assert set(table) == set(kind)
        assert len(set(table.values())) == len(table)
        assert 0 not in table.values()


def test_images_round_trip() -> None:
    (text, image) = translation.to_blocks("see", [pb.Image(media_type="image/gif", data=b"\0\xff")])
    assert text == Text("see")
    assert image == Image("image/gif", "AP8=")
    assert translation.to_blocks("", []) == ()
