"""A service at its limits: refusals arrive whole, make nothing, and what goes on is waited for."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from doubles.house import House, play, read, reason_of, stub_of
from doubles.reached import behind
from yarrow.config.settings import ServiceSettings
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceStub

S = grpc.StatusCode


async def refused(doing: Any) -> tuple[grpc.StatusCode, str, str]:
    """Status, reason and sentence."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await doing
    return caught.value.code(), reason_of(caught.value), caught.value.details() or ""


@pytest.mark.parametrize("letter", ["a", "%", "\n", "\u00e9", "\u4e2d", "\U0001f600"])
async def test_an_error_message_of_any_length_arrives_with_its_status(tmp_path: Path, letter: str) -> None:
    """Percent-encoded it takes three times the bytes, and past 8 KiB a client receives only that error."""
    house = House(tmp_path, [[{"text": "x"}]])
    async with behind(house, tmp_path / "run") as door, door.channel() as channel:
        stub: Any = AgentServiceStub(channel)
        for length in (100, 1_000, 2_000, 3_000, 100_000):
            request = pb.GetStateRequest(session_id=letter * length)
            status, reason, sentence = await refused(stub.GetState(request, metadata=door.bearer))
            assert (status, reason) == (S.NOT_FOUND, "SESSION_UNKNOWN")
            assert sentence.startswith("no session")
            assert sentence.count(repr(letter)[1:-1]) >= min(length, 250)


@pytest.mark.parametrize("session_id", ["b", ""])
async def test_no_session_is_created_beyond_the_limit(tmp_path: Path, session_id: str) -> None:
    script: list[list[dict[str, Any]]] = [[{"text": "x"}, {"wait": "gate"}]]
    house = House(tmp_path, script, service=ServiceSettings(sessions=1))
    async with stub_of(house) as stub:
        prompt = stub.Prompt(house.prompt("go", "a"))
        await read(prompt)
        request = pb.NewSessionRequest(session_id=session_id, cwd=str(house.cwd))
        for _ in range(3):
            assert (await refused(stub.NewSession(request)))[:2] == (S.RESOURCE_EXHAUSTED, "TOO_MANY")
        assert [path.stem for path in house.sessions.rglob("*.jsonl")] == ["a"]
        await house.open_gate("gate")


async def test_concurrently_created_sessions_stay_within_the_limit(tmp_path: Path) -> None:
    house = House(tmp_path, [], service=ServiceSettings(sessions=3))
    async with stub_of(house) as stub:
        made = [stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd))) for _ in range(10)]
        ended = await asyncio.gather(*made, return_exceptions=True)
        assert sum(isinstance(one, pb.NewSessionResponse) for one in ended) == 3
        assert len(list(house.sessions.rglob("*.jsonl"))) == 3


async def test_shutdown_waits_for_a_merge_as_for_a_run(tmp_path: Path) -> None:
    script: list[list[dict[str, Any]]] = [[{"text": "one"}], [{"text": "two"}], [{"wait": "gate"}, {"text": "both"}]]
    house = House(tmp_path, script)
    async with stub_of(house) as stub:
        for session in "ab":
            await play(stub, house.prompt("go", session))
        merging = asyncio.ensure_future(stub.MergeSession(pb.MergeSessionRequest(session_id="a", other_session_id="b")))
        while len((await house.scripted()).requests) < 3:
            await asyncio.sleep(0)
        house.servicer.drain()
        settled = asyncio.ensure_future(house.servicer.wait_until_idle())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not settled.done()
        await house.open_gate("gate")
        await settled
        assert (await merging).session_id
