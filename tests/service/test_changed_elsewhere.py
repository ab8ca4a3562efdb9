"""Changes of a session by one service apply to the next call of another that has it in memory."""

from pathlib import Path

import pytest

from doubles.house import House, play, stub_of
from yarrow.v1 import agent_pb2 as pb

TURNS = [[{"call": {"name": "act", "arguments": {"text": "a"}, "id": "c1"}}], [{"text": "done"}]] * 2
PLAN = pb.SessionSettings(permissions=pb.PERMISSION_MODE_PLAN)
DRY = pb.SessionSettings(dry_run=True)
WITHOUT = pb.SessionSettings(tools=pb.ToolSelection(names=["echo"]))


@pytest.mark.parametrize("settings", [DRY, PLAN, WITHOUT], ids=["dry", "plan", "tools"])
async def test_a_run_respects_settings_changed_by_another_process(tmp_path: Path, settings: pb.SessionSettings) -> None:
    house, other = House(tmp_path, TURNS), House(tmp_path, TURNS)
    async with stub_of(house) as stub, stub_of(other) as elsewhere:
        await play(stub, house.prompt(session_id="s1"))
        assert house.act.ran == ["a"]
        await elsewhere.ConfigureSession(pb.ConfigureSessionRequest(session_id="s1", settings=settings))
        await play(stub, house.prompt(session_id="s1"))
    assert house.act.ran == ["a"]


@pytest.mark.parametrize("settings", [DRY, PLAN], ids=["dry", "plan"])
async def test_a_users_tool_call_respects_settings_of_another_process(
    tmp_path: Path, settings: pb.SessionSettings
) -> None:
    house, other = House(tmp_path, TURNS), House(tmp_path, TURNS)
    async with stub_of(house) as stub, stub_of(other) as elsewhere:
        await stub.NewSession(pb.NewSessionRequest(session_id="s1", cwd=str(house.cwd)))
        await elsewhere.ConfigureSession(pb.ConfigureSessionRequest(session_id="s1", settings=settings))
        by_hand = pb.RunToolRequest(session_id="s1", tool="act", arguments_json='{"text": "x"}')
        assert [response.event async for response in stub.RunTool(by_hand)]
    assert house.act.ran == []
