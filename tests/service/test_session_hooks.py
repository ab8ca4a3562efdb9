"""Hooks of a session's life, and what one does when it misbehaves there."""

from pathlib import Path
from typing import Any

from doubles.hooking import hooks
from doubles.house import House, play, stub_of
from yarrow.agent.hooks import Contributions
from yarrow.v1 import agent_pb2 as pb

Payload = dict[str, Any]


async def test_start_and_end_hooks_run_once_per_session(tmp_path: Path) -> None:
    told: list[tuple[str, str, Payload]] = []

    def watch(payload: Payload, about: Payload) -> None:
        told.append((about["hook"], about["sessionId"], payload))

    house = House(tmp_path, [[{"text": "a"}]], added=Contributions(hooks(SessionStart=watch, SessionEnd=watch)))
    async with stub_of(house) as stub:
        await play(stub, house.prompt("go", "s1"))
        await play(stub, house.prompt("go", "s1"))
    assert [(name, session) for name, session, _ in told] == [("SessionStart", "s1"), ("SessionEnd", "s1")]
    assert told[0][2] == {"provider": "scripted", "model": "", "messageCount": 0} | {"model": told[0][2]["model"]}
    assert told[1][2]["messageCount"] == 4

    again = House(tmp_path, [[{"text": "a"}]], added=Contributions(hooks(SessionStart=watch)))
    async with stub_of(again) as stub:
        await stub.GetState(pb.GetStateRequest(session_id="s1"))
    assert told[2][2]["messageCount"] == 4


async def test_a_failing_start_hook_is_a_warning_of_the_session(tmp_path: Path) -> None:
    def fails(_payload: Payload) -> None:
        raise OSError("no")

    house = House(tmp_path, [[{"text": "a"}]], added=Contributions(hooks(SessionStart=fails, SessionEnd=fails)))
    async with stub_of(house) as stub:
        await play(stub, house.prompt("go", "s1"))
        warnings = (await stub.GetState(pb.GetStateRequest(session_id="s1"))).warnings
    assert list(warnings) == ["SessionStart hook fails was skipped: OSError: no"]
