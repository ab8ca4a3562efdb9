"""What a prompt costs a service that holds many sessions: counts, which hold on any machine."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from doubles.house import House, play, stub_of
from yarrow.agent.agent import Agent
from yarrow.session.disk import Disk
from yarrow.v1 import agent_pb2 as pb

MOST_HANDED_OVER = 4
"""Times that a prompt waits for a thread: for what is around it, for the file's lock, its message and the answer."""


async def test_a_prompt_waits_for_few_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[str] = []
    submit, to_thread = Disk.submit, asyncio.to_thread

    def counted(self: Disk, function: Any, *args: Any, **named: Any) -> Any:
        handed.append(function.__name__)
        return submit(self, function, *args, **named)

    async def counted_too(function: Any, *args: Any) -> Any:
        handed.append(getattr(function, "__name__", "partial"))
        return await to_thread(function, *args)

    house = House(tmp_path, [[{"text": "one"}], [{"text": "two"}]])
    async with stub_of(house) as stub:
        session = (await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))).session_id
        await play(stub, house.prompt(session_id=session))
        monkeypatch.setattr(Disk, "submit", counted)
        monkeypatch.setattr(asyncio, "to_thread", counted_too)
        await play(stub, house.prompt(session_id=session))
        assert 0 < len(handed) <= MOST_HANDED_OVER, handed


async def test_a_prompt_asks_no_other_session_whether_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands in memory, that took a tenth of the service's time."""
    asked: set[str] = set()
    known: Any = Agent.busy

    def busy(self: Agent) -> bool:
        asked.add(self.session.header.id)
        return known.fget(self)

    house = House(tmp_path, [[{"text": "one"}]])
    async with stub_of(house) as stub:
        names = [f"s{number}" for number in range(20)]
        for name in names:
            await stub.NewSession(pb.NewSessionRequest(session_id=name, cwd=str(house.cwd)))
        monkeypatch.setattr(Agent, "busy", property(busy))
        await play(stub, house.prompt(session_id="s3"))
        assert asked == {"s3"}
