"""Cost of a prompt in a service with many sessions: counts that hold on any machine."""

import asyncio
import gc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from doubles.house import House, play, stub_of
from yarrow.agent.agent import Agent
from yarrow.event.events import Event
from yarrow.message import Message
from yarrow.service import loaded_session
from yarrow.service.loaded_session import LoadedSession
from yarrow.session.disk_access import Disk
from yarrow.v1 import agent_pb2 as pb

KEPT = (LoadedSession, Agent, Event, Message, asyncio.Task, asyncio.TimerHandle)
"""Kinds of things that a session in memory has."""
MOST_HANDED_OVER = 4
"""Times that a prompt waits for a thread: for what is around it, for the file's lock, its message and the answer."""


async def test_a_prompt_uses_few_thread_switches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_a_prompt_does_not_query_other_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def kept() -> Counter[str]:
    """How many there are of each kind, also of those that the collector does not track."""
    gc.collect()
    seen, found = set[int](), Counter[str]()
    reached: list[Any] = gc.get_objects()
    while reached:
        one = reached.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, KEPT):
            found[type(one).__name__] += 1
        if isinstance(one, (Message, Event)) or not gc.is_tracked(one):
            continue
        reached += [other for other in gc.get_referents(one) if isinstance(other, (Message, Event))]
    return found


async def test_evicted_sessions_leave_nothing_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(tmp_path, [[{"text": f"answer {number}"}] for number in range(41)])
    async with stub_of(house) as stub:
        await play(stub, house.prompt("go", "first"))
        (await house.scripted()).requests.clear()
        before = kept()
        for number in range(20):
            await play(stub, house.prompt("go", f"s{number}"))
            await play(stub, house.prompt("more", f"s{number}"))
        (await house.scripted()).requests.clear()
        grown = kept()
        assert grown["LoadedSession"] == before["LoadedSession"] + 20
        # Two questions and two answers each, and the events of the last run, for a minute.
        assert before["Message"] < grown["Message"] <= before["Message"] + 20 * 4
        assert before["Event"] < grown["Event"]
        assert grown["Task"] <= before["Task"] + 20
        monkeypatch.setattr(loaded_session, "IDLE_SECONDS", -1.0)
        await stub.NewSession(pb.NewSessionRequest(session_id="last", cwd=str(house.cwd)))
        left = kept()
    assert left["LoadedSession"] == 1
    for kind in ("Agent", "Message", "Event", "Task", "TimerHandle"):
        assert left[kind] <= before[kind], kind
