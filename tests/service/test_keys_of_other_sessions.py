"""A provider's key is in nothing that is made of sessions, in no refusal, and in nothing that was there before it."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from doubles.house import House, play, stub_of
from doubles.rig import call
from yarrow.session.session_file_reader import load_session
from yarrow.v1 import agent_pb2 as pb

if TYPE_CHECKING:
    from yarrow.v1.agent_pb2_grpc import AgentServiceAsyncStub as Stub  # there is no such class at run time

KEY = "sk-proj-7Q2xF9hLw4"
ESCAPED = "".join(f"\\u{ord(letter):04x}" for letter in KEY)
LEAK = [{"text": f"the notes say {KEY[:7]}"}, {"text": f"{KEY[7:]} and more"}]
TURNS: list[list[dict[str, Any]]] = [
    [
        {"text": f"a {KEY}"},
        call("echo", f"one {KEY}"),
        {"call": {"name": "echo", "arguments": f'{{"text": "{ESCAPED}"}}'}},
    ],
    [{"text": "b"}],
    [{"text": "c"}],
    *[LEAK] * 3,
]


class Learnt(list[str]):
    """The keys that are known; none at first."""


@pytest.fixture
def keys() -> Learnt:
    return Learnt()


@pytest.fixture
def house(tmp_path: Path, keys: Learnt) -> House:
    return House(tmp_path, TURNS, keys=keys)


@pytest.fixture
async def stub(house: House, keys: Learnt) -> AsyncGenerator["Stub"]:
    """Two runs with a key that was not known as one at the time; now it is known."""
    async with stub_of(house) as stub:
        await play(stub, house.prompt(f"go {KEY}", "s1"))
        await play(stub, house.prompt("more", "s1"))
        (path,) = house.sessions.rglob("s1.jsonl")
        assert KEY in path.read_text()
        keys.append(KEY)
        yield stub


def written(house: House, session_id: str) -> str:
    (path,) = house.sessions.rglob(f"{session_id}.jsonl")
    loaded = load_session(path)
    assert not loaded.report.skipped_count
    return path.read_text()


async def made_by(house: House, stub: "Stub", session_id: str) -> None:
    """Assert that a session that was made is whole and has no key."""
    text = written(house, session_id)
    assert KEY not in text
    assert ESCAPED not in text
    assert "[redacted]" in text
    messages = (await stub.GetMessages(pb.GetMessagesRequest(session_id=session_id))).messages
    assert KEY not in str(messages)
    assert "[redacted]" in str(messages)


@pytest.mark.parametrize("index", [None, 2])
async def test_keys_in_a_branch_are_redacted(house: House, stub: "Stub", index: int | None) -> None:
    made = await stub.BranchSession(pb.BranchSessionRequest(session_id="s1", index=index))
    await made_by(house, stub, made.session_id)


async def test_keys_in_a_fork_are_redacted(house: House, stub: "Stub") -> None:
    await made_by(house, stub, (await stub.ForkSession(pb.ForkSessionRequest(session_id="s1"))).session_id)


@pytest.mark.parametrize("squash", [False, True])
async def test_keys_in_a_rebase_are_redacted(house: House, stub: "Stub", *, squash: bool) -> None:
    request = pb.RebaseSessionRequest(session_id="s1", indices=[0, 5] if not squash else [3, 5], squash=squash)
    await made_by(house, stub, (await stub.RebaseSession(request)).session_id)


@pytest.mark.parametrize("summary", [False, True])
async def test_keys_in_a_merge_are_redacted(house: House, stub: "Stub", *, summary: bool) -> None:
    other = await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))
    request = pb.MergeSessionRequest(session_id=other.session_id, other_session_id="s1", summary=summary)
    await made_by(house, stub, (await stub.MergeSession(request)).session_id)


@pytest.mark.parametrize("written_as", [KEY, ESCAPED])
async def test_keys_in_an_import_are_redacted(house: House, stub: "Stub", keys: Learnt, written_as: str) -> None:
    keys.clear()
    exported = b"".join(
        [one.chunk async for one in stub.ExportSession(pb.ExportSessionRequest(session_id="s1"))]
    ).decode()
    lines = exported.replace(KEY, written_as).splitlines()
    unsealed = [line.rpartition(',"crc32"')[0] + "}" for line in lines]
    unsealed[0] = json.dumps(json.loads(unsealed[0]) | {"name": f"of {KEY}", "later": {"x": KEY}})
    unsealed.append(json.dumps({"kind": "from tomorrow", "text": KEY}))
    unsealed.append(json.dumps(json.loads(unsealed[1]) | {"id": "odd", "later": KEY}))
    keys.append(KEY)

    async def pieces() -> AsyncIterator[pb.ImportSessionRequest]:
        yield pb.ImportSessionRequest(cwd=str(house.cwd), chunk="\n".join(unsealed).encode() + b"\n")

    imported = await stub.ImportSession(pieces())
    assert not imported.skipped_lines
    await made_by(house, stub, imported.session_id)
    listed = await stub.ListSessions(pb.ListSessionsRequest(cwd=str(house.cwd)))
    mine = [one for one in listed.sessions if one.session_id == imported.session_id]
    assert "of [redacted]" in str(mine)
    assert KEY not in str(mine)


async def test_records_from_before_the_key_was_known_are_redacted(house: House, stub: "Stub") -> None:
    seen = [
        await stub.GetMessages(pb.GetMessagesRequest(session_id="s1")),
        await stub.GetState(pb.GetStateRequest(session_id="s1")),
        await stub.ListSessions(pb.ListSessionsRequest(cwd=str(house.cwd))),
        await stub.GetSessionTree(pb.GetSessionTreeRequest(cwd=str(house.cwd))),
        await stub.GetStats(pb.GetStatsRequest(session_id="s1")),
    ]
    assert [type(one).__name__ for one in seen if KEY in str(one)] == []
    said = await stub.GetMessages(pb.GetMessagesRequest(session_id="s1"))
    calls = [block.tool_call for block in said.messages[1].content if block.WhichOneof("block") == "tool_call"]
    assert [json.loads(one.arguments_json)["text"] for one in calls] == ["one [redacted]", "[redacted]"]


async def test_a_directory_named_like_a_key_can_be_used(tmp_path: Path) -> None:
    (tmp_path / KEY).mkdir()
    house = House(tmp_path / KEY, TURNS, keys=[KEY])
    async with stub_of(house) as stub:
        made = await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd), session_id="s1"))
        assert made.cwd == str(house.cwd)
        await play(stub, house.prompt("go", "s1"))
        fork = (await stub.ForkSession(pb.ForkSessionRequest(session_id="s1"))).session_id
        assert (await stub.GetState(pb.GetStateRequest(session_id=fork))).cwd == str(house.cwd)
        assert (await play(stub, house.prompt("more", fork)))[-1].agent_end.reason == pb.END_REASON_COMPLETED


async def test_descriptions_of_a_session_before_its_first_run_are_redacted(house: House, keys: Learnt) -> None:
    keys.append(KEY)
    async with stub_of(house) as stub:
        made = await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))
        request = pb.ConfigureSessionRequest(session_id=made.session_id, name=f"my {KEY}")
        request.settings.system_prompt = f"never say {KEY}"
        await stub.ConfigureSession(request)
        state = await stub.GetState(pb.GetStateRequest(session_id=made.session_id))
    assert KEY not in str(state)
    assert KEY not in written(house, made.session_id)


async def test_keys_in_a_rejection_are_redacted(tmp_path: Path) -> None:
    fail = [{"error": {"code": "AUTH", "message": f"wrong key {KEY}"}}]
    house = House(tmp_path, [[{"text": "a"}], fail], keys=[KEY])
    async with stub_of(house) as stub:
        await play(stub, house.prompt("go", "s1"))
        other = await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))
        refused = [
            stub.MergeSession(pb.MergeSessionRequest(session_id=other.session_id, other_session_id="s1")),
            stub.GetState(pb.GetStateRequest(session_id=KEY)),
            stub.RunTool(pb.RunToolRequest(session_id="s1", tool=KEY)).read(),
            stub.NewSession(pb.NewSessionRequest(cwd=f"/nowhere/{KEY}")),
            stub.ListFiles(pb.ListFilesRequest(session_id="s1", prefix=f"../{KEY}/")),
        ]
        for doing in refused:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await doing
            assert KEY not in str(caught.value.details())
            assert KEY not in str(caught.value.trailing_metadata())


async def test_keys_in_blobs_are_redacted(house: House, stub: "Stub", keys: Learnt) -> None:
    keys.clear()
    lines = written(house, "s1").splitlines()
    long = [f"{'x' * 70_000} {KEY}", "y" * 70_000]
    for number, text in enumerate(long):
        content = [{"type": "text", "text": text}]
        said = {"kind": "message", "id": f"t{number}", "role": "tool", "content": content, "timestamp": ""}
        lines.append(json.dumps(said | {"toolCallId": "c", "toolName": "echo"}))

    async def pieces() -> AsyncIterator[pb.ImportSessionRequest]:
        yield pb.ImportSessionRequest(cwd=str(house.cwd), chunk="\n".join(lines).encode())

    imported = (await stub.ImportSession(pieces())).session_id
    assert len(texts_beside(house, imported)) == 2
    keys.append(KEY)
    made = (await stub.ForkSession(pb.ForkSessionRequest(session_id=imported))).session_id
    await made_by(house, stub, made)
    assert sorted(texts_beside(house, made)) == [long[0].replace(KEY, "[redacted]"), long[1]]


def texts_beside(house: House, session_id: str) -> list[str]:
    (folder,) = house.sessions.rglob(f"{session_id}.blobs")
    return [file.read_text() for file in folder.iterdir()]
