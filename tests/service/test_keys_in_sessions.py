"""A provider's key is in no event and no file, however it is split; the call runs as written."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from doubles.house import House, kinds, play, read, stub_of
from yarrow.agent.session_writer import SessionSource, SessionWriter
from yarrow.event.bus import Bus
from yarrow.message import Message, Opaque, Role, Text, Thinking, ToolCall
from yarrow.redaction.redactor import Redactor
from yarrow.session.memory_log import MemoryLog
from yarrow.session.record import Header
from yarrow.session.state import SessionState
from yarrow.v1 import agent_pb2 as pb

KEY = "sk-proj-7Q2xF9hLw4"
ESCAPED = '{"text": "' + "".join(f"\\u{ord(letter):04x}" for letter in KEY) + '"}'
USAGE = {"usage": {"input": 1}}


def letters(kind: str, text: str, size: int) -> list[dict[str, Any]]:
    return [{kind: text[at : at + size]} for at in range(0, len(text), size)]


def everything(house: House, events: list[pb.AgentEvent]) -> str:
    files = [path.read_text() for path in house.sessions.rglob("*") if path.is_file()]
    return "\n".join([*map(str, events), *files])


def text_of(events: list[pb.AgentEvent], kind: str) -> str:
    return "".join(getattr(event, kind).text for event in events if event.WhichOneof("event") == kind)


@pytest.mark.parametrize("size", [1, 2, 7, 100])
async def test_keys_in_answers_are_redacted(tmp_path: Path, size: int) -> None:
    thought = letters("thinking", f"it is {KEY}, sk-", size)
    text = letters("text", f"use {KEY}! {KEY[:-1]}; s", size)
    text.insert(len(text) // 2, USAGE)
    turns = [[*thought, *text, {"call": {"name": "act", "arguments": ESCAPED}}], [{"text": f"done {KEY[:9]}"}]]
    house = House(tmp_path, turns, keys=[KEY])
    async with stub_of(house) as stub:
        request = house.prompt(session_id="s1")
        request.settings.thinking = pb.THINKING_LEVEL_HIGH
        events = await play(stub, request)
        messages = (await stub.GetMessages(pb.GetMessagesRequest(session_id="s1"))).messages
        second = (await house.scripted()).requests[1].messages
    assert house.act.ran == [KEY]
    told = kinds(events)
    assert "text_delta" not in told[told.index("tool_call") : told.index("message_end")]
    assert KEY not in everything(house, events) + str(messages)
    assert ESCAPED[12:40] not in everything(house, events)
    assert text_of(events, "thinking_delta") == "it is [redacted], sk-"
    assert text_of(events, "text_delta") == f"use [redacted]! {KEY[:-1]}; sdone {KEY[:9]}"
    assert messages[1].content[1].text.text == f"use [redacted]! {KEY[:-1]}; s"
    assert json.loads(second[1].tool_calls[0].arguments) == {"text": "[redacted]"}


async def test_keys_in_prompts_and_questions_are_redacted(tmp_path: Path) -> None:
    turns = [[{"call": {"name": "act", "arguments": {"text": KEY}}}], [{"text": "a"}], [{"text": "b"}]]
    house = House(tmp_path, turns, keys=[KEY], rules={f"act(*{KEY}*)": "ask"})
    events: list[pb.AgentEvent] = []
    async with stub_of(house) as stub:
        call = stub.Prompt(house.prompt(f"the key is {KEY}", "s1", answers_permissions=True))
        while not events or events[-1].WhichOneof("event") != "permission_request":
            events.append((await read(call)).event)
        state = await stub.GetState(pb.GetStateRequest(session_id="s1"))
        await stub.FollowUp(pb.FollowUpRequest(session_id="s1", text=f"again: {KEY}"))
        request_id = events[-1].permission_request.request_id
        no = pb.PERMISSION_ANSWER_NO
        await stub.AnswerPermission(
            pb.AnswerPermissionRequest(session_id="s1", request_id=request_id, answer=no, text=f"not with {KEY}")
        )
        while "agent_end" not in kinds(events):
            events.append((await read(call)).event)
        by_hand = pb.RunToolRequest(session_id="s1", tool="act", arguments_json=json.dumps({"text": KEY}))
        events += [response.event async for response in stub.RunTool(by_hand)]
    assert house.act.ran == [KEY]
    assert KEY not in everything(house, events) + str(state)
    assert "[redacted]" in events[0].agent_start.text
    assert "permission_request" in kinds(events)


async def test_keys_in_errors_are_redacted(tmp_path: Path) -> None:
    house = House(tmp_path, [[{"text": "a"}, {"error": {"code": "AUTH", "message": f"wrong key {KEY}"}}]], keys=[KEY])
    async with stub_of(house) as stub:
        events = await play(stub, house.prompt())
    assert KEY not in everything(house, events)
    assert "wrong key [redacted]" in str(events[-1])


async def test_a_signed_block_is_unchanged_or_dropped() -> None:
    log = MemoryLog("s1")
    header = Header(id="s1", cwd="/", created_at="", updated_at="")

    async def reload() -> SessionState:
        raise AssertionError("nobody else writes")

    desk = SessionWriter(SessionSource(log, SessionState(header), reload), Bus("s1", now=lambda: 0.0))
    desk.redactor = Redactor([KEY])
    sealed = Opaque('{"type": "redacted_thinking",  "data": "sk-proj-"}')
    content = (
        Thinking("fine", "signed 1"), Thinking(f"it is {KEY}", "signed 2"), sealed, Text("a", "signed 3"),
        ToolCall("c", "act", '{"a":  1.50}', opaque="signed 4"),
        ToolCall("d", "act", f'{{"a":  "{KEY}", "b": 1.50}}', opaque="signed 5"),
    )  # fmt: skip
    told = Message(id="m", role=Role.ASSISTANT, content=content, timestamp="")
    await desk.lock()
    await desk.append(told)
    changed = (
        content[0], Thinking("it is [redacted]"), sealed, content[3], content[4],
        ToolCall("d", "act", '{"a":  "[redacted]", "b": 1.50}'),
    )  # fmt: skip
    assert tuple(desk.session.messages) == (replace(told, content=changed),)
    leaking = Opaque(f'{{"type": "server_tool_use", "input": "{KEY}"}}')
    await desk.append(replace(told, id="n", content=(leaking, sealed, Text("b"))))
    assert desk.session.messages[1].content == (Text("b"),)
    await desk.unlock()


@pytest.mark.parametrize("place", ["arguments", "cwd"])
async def test_always_for_a_call_with_a_key_acts_as_session(tmp_path: Path, place: str) -> None:
    arguments = {"text": f'say "{KEY}"'} if place == "arguments" else {"text": "x"}
    turns = [[{"call": {"name": "act", "arguments": arguments}}] * 2, [{"text": "a"}]]
    if place == "cwd":
        tmp_path /= KEY
        tmp_path.mkdir()
    house = House(tmp_path, turns, keys=[KEY], rules={"act": "ask"})
    events: list[pb.AgentEvent] = []
    async with stub_of(house) as stub:
        call = stub.Prompt(house.prompt("go", "s1", answers_permissions=True))
        while not events or events[-1].WhichOneof("event") != "permission_request":
            events.append((await read(call)).event)
        answer = pb.AnswerPermissionRequest(
            session_id="s1",
            request_id=events[-1].permission_request.request_id,
            answer=pb.PERMISSION_ANSWER_ALWAYS,
        )
        await stub.AnswerPermission(answer)
        await stub.AnswerPermission(answer)
        while "agent_end" not in kinds(events):
            events.append((await read(call)).event)
    assert len(house.act.ran) == 2
    assert house.allowed == []
    (settled,) = [event.permission_settled for event in events if event.WhichOneof("event") == "permission_settled"]
    assert settled.answer == pb.PERMISSION_ANSWER_SESSION
    (notice,) = [event.notice for event in events if event.WhichOneof("event") == "notice"]
    assert notice.code == "NOT_KEPT"
    assert "for this session" in notice.text
    if place == "arguments":
        assert KEY not in everything(house, events)
