"""Failed model calls behind the RPCs: their events for clients, and calls that create a session."""

from pathlib import Path
from typing import Any

import pytest

from doubles.house import House, kinds, play, stub_of
from yarrow.v1 import agent_pb2 as pb

BUSY = [{"error": {"code": "OVERLOADED", "message": "busy", "retryable": True}}]


async def test_each_retry_delay_is_reported_to_the_client(tmp_path: Path) -> None:
    house = House(tmp_path, [BUSY, [{"text": "fine"}]])
    async with stub_of(house) as stub:
        events = await play(stub, house.prompt("go"))
    [told] = [event.retry_scheduled for event in events if event.WhichOneof("event") == "retry_scheduled"]
    assert told == pb.RetryScheduled(attempt=2, delay=2.0, code="OVERLOADED", message="busy")
    assert [kind for kind in kinds(events) if kind in ("turn_start", "message_end", "turn_end", "retry_scheduled")] == [
        "turn_start", "message_end", "turn_end", "retry_scheduled", "turn_start", "message_end", "turn_end",
    ]  # fmt: skip
    assert events[-1].agent_end.reason == pb.END_REASON_COMPLETED


@pytest.mark.parametrize("failed", [BUSY, []], ids=["overloaded", "empty"])
async def test_the_synthesis_turn_of_a_merge_is_retried(tmp_path: Path, failed: list[dict[str, Any]]) -> None:
    house = House(tmp_path, [[{"text": "a"}], [{"text": "b"}], failed, [{"text": "BOTH"}]])
    async with stub_of(house) as stub:
        await play(stub, house.prompt("one", "s1"))
        await play(stub, house.prompt("two", "s2"))
        made = await stub.MergeSession(pb.MergeSessionRequest(session_id="s1", other_session_id="s2"))
        messages = (await stub.GetMessages(pb.GetMessagesRequest(session_id=made.session_id))).messages
    assert messages[-1].content[0].text.text == "BOTH"


@pytest.mark.parametrize("failed", [BUSY, []], ids=["overloaded", "empty"])
async def test_the_summary_of_a_rebase_is_retried(tmp_path: Path, failed: list[dict[str, Any]]) -> None:
    house = House(tmp_path, [[{"text": "a"}], [{"text": "b"}], failed, [{"text": "NOTES"}]])
    async with stub_of(house) as stub:
        await play(stub, house.prompt("one", "s1"))
        await play(stub, house.prompt("two", "s1"))
        made = await stub.RebaseSession(pb.RebaseSessionRequest(session_id="s1", indices=[2, 3], squash=True))
        messages = (await stub.GetMessages(pb.GetMessagesRequest(session_id=made.session_id))).messages
    assert any("NOTES" in block.text.text for message in messages for block in message.content)
