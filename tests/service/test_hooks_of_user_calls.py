"""The hooks around a tool call of the user."""

from pathlib import Path
from typing import Any

from doubles.hooking import hooks
from doubles.house import House, stub_of
from yarrow.agent.hooks import Contributions
from yarrow.v1 import agent_pb2 as pb

BY_HAND = pb.RunToolRequest(session_id="s1", tool="act", arguments_json='{"text": "x"}')


async def test_the_users_first_tool_call_is_guarded_by_hooks(tmp_path: Path) -> None:
    def guard(payload: dict[str, Any]) -> dict[str, Any]:
        return {**payload, "answer": {"text": "not allowed here", "isError": True}}

    house = House(tmp_path, [], added=Contributions(hooks(BeforeToolCall=guard)))
    async with stub_of(house) as stub:
        await stub.NewSession(pb.NewSessionRequest(session_id="s1", cwd=str(house.cwd)))
        events = [response.event async for response in stub.RunTool(BY_HAND)]
    assert events[-1].tool_output.text == "not allowed here"
    assert house.act.ran == []


async def test_hooks_of_a_users_tool_call_receive_the_current_dry_run(tmp_path: Path) -> None:
    seen: list[bool] = []

    def look(payload: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
        seen.append(about["dryRun"])
        return payload

    house = House(tmp_path, [], added=Contributions(hooks(BeforeToolCall=look)))
    async with stub_of(house) as stub:
        await stub.NewSession(pb.NewSessionRequest(session_id="s1", cwd=str(house.cwd)))
        for dry in (False, True, False):
            settings = pb.SessionSettings(dry_run=dry)
            await stub.ConfigureSession(pb.ConfigureSessionRequest(session_id="s1", settings=settings))
            assert [response.event async for response in stub.RunTool(BY_HAND)]
    assert seen == [False, True, False]
