"""Saved sessions as a whole, through the RPCs: searching, deleting."""

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from doubles.house import House, play, refused, stub_of
from yarrow.v1 import agent_pb2 as pb

if TYPE_CHECKING:
    from yarrow.v1.agent_pb2_grpc import AgentServiceAsyncStub as Stub

S = grpc.StatusCode


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path, [[{"text": "The answer is Forty-Two."}], [{"text": "b"}], [{"text": "c"}]])


async def found(house: House, stub: "Stub", text: str) -> list[str]:
    response = await stub.ListSessions(pb.ListSessionsRequest(cwd=str(house.cwd), search=text))
    return [session.session_id for session in response.sessions]


async def test_a_session_is_found_by_its_messages(house: House, stub: "Stub") -> None:
    await play(stub, house.prompt("What is it?", "s1"))
    await play(stub, house.prompt("Something else", "s2"))
    assert await found(house, stub, "forty-two") == ["s1"]
    assert await found(house, stub, "something ELSE") == ["s2"]
    assert await found(house, stub, "nowhere") == []
    assert sorted(await found(house, stub, "")) == ["s1", "s2"]


async def test_a_deleted_session_is_unknown_everywhere(house: House, stub: "Stub") -> None:
    await play(stub, house.prompt("go", "s1"))
    await stub.DeleteSession(pb.DeleteSessionRequest(session_id="s1"))
    assert not list(house.sessions.rglob("*.jsonl"))
    assert await found(house, stub, "") == []
    assert await refused(stub.GetState(pb.GetStateRequest(session_id="s1"))) == (S.NOT_FOUND, "SESSION_UNKNOWN")
    assert await refused(stub.DeleteSession(pb.DeleteSessionRequest(session_id="s1"))) == (
        S.NOT_FOUND,
        "SESSION_UNKNOWN",
    )
    await play(stub, house.prompt("anew", "s1"))
    assert len((await stub.GetMessages(pb.GetMessagesRequest(session_id="s1"))).messages) == 2


async def test_an_invalid_id_is_rejected(stub: "Stub") -> None:
    for hostile in ("../x", "", "a/b"):
        code, _ = await refused(stub.DeleteSession(pb.DeleteSessionRequest(session_id=hostile)))
        assert code is S.INVALID_ARGUMENT


async def test_a_running_session_is_not_deleted(tmp_path: Path) -> None:
    house = House(tmp_path, [[{"wait": "g"}, {"text": "a"}]])
    async with stub_of(house) as stub:
        await stub.NewSession(pb.NewSessionRequest(session_id="s1", cwd=str(house.cwd)))
        running = asyncio.ensure_future(play(stub, house.prompt("go", "s1")))
        while not (await stub.GetState(pb.GetStateRequest(session_id="s1"))).run_id:
            await asyncio.sleep(0)
        delete = stub.DeleteSession(pb.DeleteSessionRequest(session_id="s1"))
        assert await refused(delete) == (S.FAILED_PRECONDITION, "BUSY")
        await house.open_gate("g")
        events = await running
        assert events[-1].agent_end.reason == pb.END_REASON_COMPLETED
        await stub.DeleteSession(pb.DeleteSessionRequest(session_id="s1"))


async def test_a_session_locked_by_another_process_is_not_deleted(house: House, stub: "Stub") -> None:
    await play(stub, house.prompt("go", "s1"))
    log = await house.parts.manager.open("s1")
    async with log.lock():
        delete = stub.DeleteSession(pb.DeleteSessionRequest(session_id="s1"))
        assert await refused(delete) == (S.FAILED_PRECONDITION, "LOCKED")
    assert len((await stub.GetMessages(pb.GetMessagesRequest(session_id="s1"))).messages) == 2


# ---- what is in a file may have been written by anybody ----

HEADER = {"kind": "header", "version": 1, "id": "odd", "cwd": "/", "createdAt": "2026-11-28T00:00:00.000Z"}
SAID = {"kind": "message", "id": "m", "role": "user", "content": [{"type": "text", "text": "hi"}]}
NEGATIVE = {"compaction": {"enabled": True, "reserveTokens": -5, "keepRecentTokens": 1 << 40}}


def plant(house: House, name: str, *lines: dict[str, Any]) -> Path:
    from yarrow.session.session_list import project_dir

    folder = project_dir(house.sessions, str(house.cwd))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("time", ["99999-01-01T00:00:00Z", "", "2026", "0001-01-01T00:00:00+14:00", "x"])
async def test_an_odd_time_breaks_neither_the_list_nor_the_session(house: House, stub: "Stub", time: str) -> None:
    plant(house, "odd", HEADER | {"createdAt": time, "updatedAt": time}, SAID | {"timestamp": time})
    await play(stub, house.prompt("go", "s1"))
    assert sorted(await found(house, stub, "")) == ["odd", "s1"]
    tree = await stub.GetSessionTree(pb.GetSessionTreeRequest(cwd=str(house.cwd)))
    assert len(tree.nodes) == 2
    await stub.GetStats(pb.GetStatsRequest(session_id="odd"))
    assert len((await stub.GetMessages(pb.GetMessagesRequest(session_id="odd"))).messages) == 1


async def test_out_of_range_numbers_keep_a_session_usable(house: House, stub: "Stub") -> None:
    change = {"kind": "change", "timestamp": "2026-11-28T00:00:00.000Z", **NEGATIVE}
    plant(house, "odd", HEADER | {"updatedAt": HEADER["createdAt"]}, SAID | {"timestamp": HEADER["createdAt"]}, change)
    state = await stub.GetState(pb.GetStateRequest(session_id="odd"))
    assert state.settings.compaction.reserve_tokens == 0
    await stub.GetStats(pb.GetStatsRequest(session_id="odd"))
    await stub.DeleteSession(pb.DeleteSessionRequest(session_id="odd"))


async def test_a_symlink_loop_hides_no_other_session(house: House, stub: "Stub") -> None:
    await play(stub, house.prompt("go", "s1"))
    (path,) = house.sessions.rglob("*.jsonl")
    (path.parent / "loop.jsonl").symlink_to("loop.jsonl")
    (house.sessions / "plink").symlink_to("plink")
    assert await found(house, stub, "") == ["s1"]
    await play(stub, house.prompt("on", "s1"))


async def test_drafts_of_killed_imports_are_removed_by_the_next_import(house: House, stub: "Stub") -> None:
    await play(stub, house.prompt("go", "s1"))
    old, fresh = house.sessions / ".old.import", house.sessions / ".fresh.import"
    for draft in (old, fresh):
        draft.write_bytes(b"x")
    os.utime(old, (1, 1))
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.ImportSession(iter([pb.ImportSessionRequest(chunk=b"<html>", cwd=str(house.cwd))]))
    assert not old.exists()
    assert fresh.exists()


async def test_an_unused_session_is_evicted_and_reloaded(
    house: House, stub: "Stub", monkeypatch: pytest.MonkeyPatch
) -> None:
    await play(stub, house.prompt("go", "s1"))
    kept = (await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd), ephemeral=True))).session_id
    await stub.GetState(pb.GetStateRequest(session_id="s1"))
    monkeypatch.setattr("yarrow.service.loaded_session.IDLE_SECONDS", 0.0)
    await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))
    code, reason = await refused(stub.Abort(pb.AbortRequest(session_id="s1")))
    assert (code, reason) == (S.NOT_FOUND, "SESSION_NOT_ACTIVE")
    monkeypatch.setattr("yarrow.service.loaded_session.IDLE_SECONDS", 1800.0)
    assert (await stub.GetState(pb.GetStateRequest(session_id="s1"))).message_count == 2
    assert (await stub.GetState(pb.GetStateRequest(session_id=kept))).session_id == kept


async def test_a_watched_or_running_session_is_not_evicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(tmp_path, [[{"wait": "g"}, {"text": "a"}]])
    async with stub_of(house) as stub:
        await stub.NewSession(pb.NewSessionRequest(session_id="s1", cwd=str(house.cwd)))
        running = asyncio.ensure_future(play(stub, house.prompt("go", "s1")))
        while not (await stub.GetState(pb.GetStateRequest(session_id="s1"))).run_id:
            await asyncio.sleep(0)
        monkeypatch.setattr("yarrow.service.loaded_session.IDLE_SECONDS", 0.0)
        await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))
        await house.open_gate("g")
        assert (await running)[-1].agent_end.reason == pb.END_REASON_COMPLETED
