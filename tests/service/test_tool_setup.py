"""The tools of a run are set up at its first call, and not at all if it calls none."""

import asyncio
from pathlib import Path

import pytest

from doubles.house import House, play, stub_of
from yarrow.service.tool_context_factory import ToolContexts
from yarrow.v1 import agent_pb2 as pb

CALL = {"call": {"name": "echo", "arguments": {"text": "x"}}}


async def test_only_a_run_with_a_call_sets_up_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    make = ToolContexts._make_context  # pyright: ignore[reportPrivateUsage]

    def counted(self: ToolContexts, entry: object) -> object:
        made.append("context")
        return make(self, entry)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(ToolContexts, "_make_context", counted)
    house = House(tmp_path, [[{"text": "one"}], [CALL, CALL], [CALL], [{"text": "two"}]])
    async with stub_of(house) as stub:
        await play(stub, house.prompt(session_id="s"))
        assert made == []
        await play(stub, house.prompt(session_id="s"))
        assert made == ["context"]


async def test_a_directory_replaced_before_the_first_call_ends_the_run(tmp_path: Path) -> None:
    house = House(tmp_path, [[{"wait": "gate"}, CALL, CALL]])
    async with stub_of(house) as stub:
        events: list[pb.AgentEvent] = []
        async for response in stub.Prompt(house.prompt(session_id="s")):
            events.append(response.event)
            if response.event.HasField("message_start"):
                house.cwd.rename(tmp_path / "moved")
                (tmp_path / "other").mkdir()
                house.cwd.symlink_to(tmp_path / "other")
                await house.open_gate("gate")
        outputs = [event.tool_output for event in events if event.HasField("tool_output")]
        assert [one.is_error for one in outputs] == [True, True]
        assert events[-1].agent_end.reason == pb.END_REASON_ERROR
        assert "replaced by a symlink" in events[-1].agent_end.error.message
        await asyncio.sleep(0)
        assert not house.running("s")
