"""Sessions made of sessions, through the RPCs: branch, fork, rebase, merge, compact, tree, figures, export, import."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from doubles.house import House, play, refused, stub_of
from doubles.rig import call
from yarrow.config.settings import CompactionSettings
from yarrow.session.record import Header
from yarrow.session.session_file_reader import load_session
from yarrow.v1 import agent_pb2 as pb

if TYPE_CHECKING:
    from yarrow.v1.agent_pb2_grpc import AgentServiceAsyncStub as Stub

S = grpc.StatusCode
NOTES = [{"text": "NOTES of a model"}, {"usage": {"input": 5, "output": 3}}]
LONG = "The quick brown fox jumps over the lazy dog again and again. " * 160


def turns(*more: Any) -> list[Any]:
    return [[{"text": "a"}, call("echo", "one")], [{"text": "b"}], [{"text": "c"}], *more]


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path, turns(NOTES, NOTES, [{"text": "d"}], [{"text": "e"}]))


async def texts(stub: "Stub", session_id: str) -> list[str]:
    messages = (await stub.GetMessages(pb.GetMessagesRequest(session_id=session_id))).messages
    return ["".join(block.text.text for block in message.content) for message in messages]


async def two_runs(house: House, stub: "Stub") -> str:
    """Six messages: go, a with a call, its result, b, more, c."""
    await play(stub, house.prompt("go", "s1"))
    await play(stub, house.prompt("more", "s1"))
    return "s1"


def header_of(house: House, session_id: str) -> Header:
    (path,) = house.sessions.rglob(f"{session_id}.jsonl")
    return load_session(path).header


ALL = ["go", "a", "one", "b", "more", "c"]


@pytest.mark.parametrize(
    ("index", "kept"), [(None, ALL), (5, ALL), (3, ALL[:4]), (-1, ALL), (-2, ALL[:5]), (0, ALL[:1])]
)
async def test_a_branch_contains_the_history_up_to_a_message(
    house: House, stub: "Stub", index: int | None, kept: list[str]
) -> None:
    await two_runs(house, stub)
    made = await stub.BranchSession(pb.BranchSessionRequest(session_id="s1", index=index))
    assert await texts(stub, made.session_id) == kept
    assert header_of(house, made.session_id).parent_id == "s1"
    assert await texts(stub, "s1") == ALL
    events = await play(stub, house.prompt("on", made.session_id))
    assert events[-1].agent_end.reason == pb.END_REASON_COMPLETED


@pytest.mark.parametrize("index", [6, -7, 1 << 30])
async def test_a_branch_with_an_index_out_of_range_is_rejected(house: House, stub: "Stub", index: int) -> None:
    await two_runs(house, stub)
    doing = stub.BranchSession(pb.BranchSessionRequest(session_id="s1", index=index))
    assert await refused(doing) == (S.INVALID_ARGUMENT, "INVALID_ARGUMENT")


async def test_a_fork_has_no_parent(house: House, stub: "Stub") -> None:
    await two_runs(house, stub)
    made = await stub.ForkSession(pb.ForkSessionRequest(session_id="s1"))
    header = header_of(house, made.session_id)
    assert (header.parent_id, header.forked_from) == (None, "s1")
    assert await texts(stub, made.session_id) == ALL


async def test_a_rebase_selects_calls_and_results_together(house: House, stub: "Stub") -> None:
    await two_runs(house, stub)
    made = await stub.RebaseSession(pb.RebaseSessionRequest(session_id="s1", indices=[2, 4]))
    assert list(made.added) == [1]
    assert await texts(stub, made.session_id) == ["a", "one", "more"]
    assert header_of(house, made.session_id).rebased_from == "s1"


async def test_a_squash_summarizes_the_rest(house: House, stub: "Stub") -> None:
    await two_runs(house, stub)
    made = await stub.RebaseSession(pb.RebaseSessionRequest(session_id="s1", indices=[4, 5], squash=True))
    first, *rest = await texts(stub, made.session_id)
    assert "NOTES of a model" in first
    assert rest == ["more", "c"]
    request = (await house.scripted()).requests[-1]
    assert request.tools == ()
    assert "more" not in request.messages[-1].text
    assert "one" in request.messages[-1].text


@pytest.mark.parametrize("indices", [[], [9], [1, 1]])
async def test_an_invalid_selection_is_rejected(house: House, stub: "Stub", indices: list[int]) -> None:
    await two_runs(house, stub)
    doing = stub.RebaseSession(pb.RebaseSessionRequest(session_id="s1", indices=indices))
    assert await refused(doing) == (S.INVALID_ARGUMENT, "INVALID_ARGUMENT")


async def test_a_merge_contains_both_histories_and_a_synthesis_turn(house: House, stub: "Stub") -> None:
    await two_runs(house, stub)
    branch = (await stub.BranchSession(pb.BranchSessionRequest(session_id="s1", index=3))).session_id
    await play(stub, house.prompt("aside", branch))
    made = await stub.MergeSession(pb.MergeSessionRequest(session_id="s1", other_session_id=branch[-8:]))
    merged = await texts(stub, made.session_id)
    assert merged[:8] == [*ALL, "aside", "NOTES of a model"]
    assert "merged" in merged[8]
    assert merged[9] == "NOTES of a model"
    header = header_of(house, made.session_id)
    assert (header.parent_id, header.merged_from) == ("s1", branch)
    assert (await play(stub, house.prompt("on", made.session_id)))[-1].agent_end.reason == pb.END_REASON_COMPLETED


async def test_a_merge_can_summarize_the_other_session(house: House, stub: "Stub") -> None:
    await two_runs(house, stub)
    other = (await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))).session_id
    await play(stub, house.prompt("elsewhere", other))
    made = await stub.MergeSession(pb.MergeSessionRequest(session_id="s1", other_session_id=other, summary=True))
    merged = await texts(stub, made.session_id)
    assert merged[:6] == ALL
    assert len(merged) == 9
    assert "elsewhere" not in merged


async def test_an_impossible_merge_is_rejected_and_creates_nothing(house: House, stub: "Stub") -> None:
    await two_runs(house, stub)
    branch = (await stub.BranchSession(pb.BranchSessionRequest(session_id="s1"))).session_id
    for other in ("s1", branch):
        doing = stub.MergeSession(pb.MergeSessionRequest(session_id="s1", other_session_id=other))
        assert (await refused(doing))[0] is S.INVALID_ARGUMENT
    doing = stub.MergeSession(pb.MergeSessionRequest(session_id="s1", other_session_id="nobody"))
    assert (await refused(doing))[0] is S.NOT_FOUND
    assert len(list(house.sessions.rglob("*.jsonl"))) == 2


async def test_a_merge_whose_model_fails_creates_nothing(tmp_path: Path) -> None:
    house = House(tmp_path, turns([{"text": "x"}], [{"error": {"code": "SERVER_ERROR", "message": "boom"}}]))
    async with stub_of(house) as stub:
        await two_runs(house, stub)
        await play(stub, house.prompt("other", "s2"))
        doing = stub.MergeSession(pb.MergeSessionRequest(session_id="s1", other_session_id="s2"))
        assert await refused(doing) == (S.UNAVAILABLE, "SERVER_ERROR")
    assert sorted(path.stem for path in house.sessions.rglob("*.jsonl")) == ["s1", "s2"]


@pytest.mark.parametrize("name", ["BranchSession", "ForkSession", "RebaseSession", "MergeSession", "ExportSession"])
async def test_an_unknown_session_is_not_found(stub: "Stub", name: str) -> None:
    doing = getattr(stub, name)(getattr(pb, f"{name}Request")(session_id="nobody"))
    assert (await refused(doing.read() if hasattr(doing, "read") else doing))[0] is S.NOT_FOUND


async def test_an_unsaved_session_cannot_be_forked(house: House, stub: "Stub") -> None:
    made = await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd), ephemeral=True))
    doing = stub.ForkSession(pb.ForkSessionRequest(session_id=made.session_id))
    assert (await refused(doing))[0] is S.FAILED_PRECONDITION


async def test_a_running_session_can_be_branched(tmp_path: Path) -> None:
    house = House(tmp_path, [[{"text": "a"}], [{"wait": "g"}, {"text": "b"}]])
    async with stub_of(house) as stub:
        await play(stub, house.prompt("go", "s1"))
        running = asyncio.ensure_future(play(stub, house.prompt("more", "s1")))
        while not (await stub.GetState(pb.GetStateRequest(session_id="s1"))).run_id:
            await asyncio.sleep(0)
        made = await stub.BranchSession(pb.BranchSessionRequest(session_id="s1"))
        assert await texts(stub, made.session_id) == ["go", "a", "more"]
        await house.open_gate("g")
        await running


# ---- compaction ----


@pytest.fixture
def small(tmp_path: Path) -> House:
    compaction = CompactionSettings(reserve_tokens=1000, keep_recent_tokens=1500)
    return House(tmp_path, [[{"text": "a"}], [{"text": "b"}], NOTES, [{"text": "c"}]], compaction=compaction)


async def compact(stub: "Stub", session_id: str, instructions: str = "") -> list[pb.AgentEvent]:
    request = pb.CompactRequest(session_id=session_id, instructions=instructions)
    return [response.event async for response in stub.Compact(request)]


async def test_manual_compaction_streams_its_events(small: House) -> None:
    async with stub_of(small) as stub:
        for _ in range(2):
            await play(stub, small.prompt(LONG, "s1"))
        events = await compact(stub, "s1", "Mind the foxes.")
        kinds = [event.WhichOneof("event") for event in events if event.WhichOneof("event") != "state_change"]
        assert kinds == ["compaction_start", "usage", "compaction_end"]
        end = events[-1].compaction_end
        assert not end.HasField("error")
        assert 0 < end.tokens_after < events[1].compaction_start.tokens_before
        assert "Mind the foxes." in str((await small.scripted()).requests[-1])
        stats = await stub.GetStats(pb.GetStatsRequest(session_id="s1"))
        (record,) = stats.compactions
        assert (record.reason, record.summary) == ("manual", end.summary)
        assert record.usage.input == 5
        await play(stub, small.prompt("next", "s1"))
        sent = (await small.scripted()).requests[-1].messages
        assert sent[0].text.startswith("<!-- yarrow-summary -->")


async def test_nothing_to_compact_and_an_unknown_session(house: House, stub: "Stub") -> None:
    await play(stub, house.prompt("go", "s1"))
    doing = stub.Compact(pb.CompactRequest(session_id="s1"))
    assert await refused(doing.read()) == (S.FAILED_PRECONDITION, "NOTHING_TO_COMPACT")
    assert (await refused(stub.Compact(pb.CompactRequest(session_id="x")).read()))[0] is S.NOT_FOUND


async def test_the_compaction_model_is_a_setting_of_the_session(house: House, stub: "Stub") -> None:
    await play(stub, house.prompt("go", "s1"))
    settings = pb.SessionSettings(compaction=pb.CompactionSettings(model="cheap"))
    made = await stub.ConfigureSession(pb.ConfigureSessionRequest(session_id="s1", settings=settings))
    assert (made.settings.compaction.model, made.settings.compaction.reserve_tokens) == ("cheap", 2048)


# ---- tree, figures ----


async def test_the_tree_contains_what_drawing_needs(house: House, stub: "Stub") -> None:
    await two_runs(house, stub)
    children = [(await stub.BranchSession(pb.BranchSessionRequest(session_id="s1"))).session_id for _ in range(2)]
    fork = (await stub.ForkSession(pb.ForkSessionRequest(session_id="s1"))).session_id
    nodes = (await stub.GetSessionTree(pb.GetSessionTreeRequest(cwd=str(house.cwd)))).nodes
    assert {node.session.session_id for node in nodes} == {"s1", fork, *children}
    rows = {node.session.session_id: node for node in nodes}
    assert [rows[child].indent for child in children] == [1, 1]
    assert rows[fork].indent == 0
    assert rows[children[0]].session.parent_id == "s1"
    elsewhere = await stub.GetSessionTree(pb.GetSessionTreeRequest(cwd="/"))
    assert list(elsewhere.nodes) == []
    everywhere = await stub.GetSessionTree(pb.GetSessionTreeRequest(scope=pb.SESSION_SCOPE_ALL))
    assert len(everywhere.nodes) == 4


async def test_the_statistics_of_a_session(house: House, stub: "Stub") -> None:
    await two_runs(house, stub)
    stats = await stub.GetStats(pb.GetStatsRequest(session_id="s1"))
    assert [(tool.name, tool.count) for tool in stats.tools] == [("echo", 1)]
    assert [model.count for model in stats.models] == [3]
    assert stats.created.seconds == 1_700_000_000
    assert stats.context_tokens > 0
    assert stats.skipped_lines == 0
    made = await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd), ephemeral=True))
    assert (await stub.GetStats(pb.GetStatsRequest(session_id=made.session_id))).session_id == made.session_id


# ---- export, import ----


async def exported(stub: "Stub", session_id: str, export_format: int = pb.EXPORT_FORMAT_JSONL) -> bytes:
    request = pb.ExportSessionRequest(session_id=session_id, format=export_format)  # pyright: ignore[reportArgumentType]
    return b"".join([response.chunk async for response in stub.ExportSession(request)])


async def imported(stub: "Stub", data: bytes, cwd: str, **first: Any) -> pb.ImportSessionResponse:
    async def pieces() -> AsyncIterator[pb.ImportSessionRequest]:
        yield pb.ImportSessionRequest(chunk=data[:10], cwd=cwd, **first)
        for start in range(10, len(data), 1000):
            yield pb.ImportSessionRequest(chunk=data[start : start + 1000])

    return await stub.ImportSession(pieces())


async def test_an_export_can_be_imported_as_another_session(house: House, stub: "Stub", tmp_path: Path) -> None:
    await two_runs(house, stub)
    data = await exported(stub, "s1")
    assert [json.loads(line)["kind"] for line in data.splitlines()][:2] == ["header", "message"]
    there = tmp_path / "there"
    there.mkdir()
    made = await imported(stub, data, str(there), size=len(data))
    assert made.session_id != "s1"
    assert await texts(stub, made.session_id) == ALL
    header = header_of(house, made.session_id)
    assert (header.imported_from, header.cwd, header.parent_id) == ("s1", str(there), None)
    assert not [path for path in house.sessions.rglob("*") if path.name.endswith(".import")]


async def test_an_html_export(house: House, stub: "Stub") -> None:
    await two_runs(house, stub)
    page = (await exported(stub, "s1", pb.EXPORT_FORMAT_HTML)).decode()
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    assert "Content-Security-Policy" in page


@pytest.mark.parametrize(
    ("data", "first", "code"),
    [
        (b"<html>", {}, S.INVALID_ARGUMENT),
        (b"", {}, S.INVALID_ARGUMENT),
        (b'{"kind":"header"', {}, S.INVALID_ARGUMENT),
        (b"x" * 100, {"size": 1000}, S.INVALID_ARGUMENT),
        (b"x" * 100, {"size": 1 << 40}, S.RESOURCE_EXHAUSTED),
    ],
)
async def test_an_invalid_import_creates_no_session(
    house: House, stub: "Stub", data: bytes, first: dict[str, Any], code: S
) -> None:
    assert (await refused(imported(stub, data, str(house.cwd), **first)))[0] is code
    assert not [path for path in house.sessions.rglob("*") if path.is_file()]


async def test_an_import_needs_a_directory_and_a_stream(house: House, stub: "Stub") -> None:
    assert (await refused(imported(stub, b"x", "relative")))[0] is S.INVALID_ARGUMENT

    async def nothing() -> AsyncIterator[pb.ImportSessionRequest]:
        return
        yield

    assert (await refused(stub.ImportSession(nothing())))[0] is S.INVALID_ARGUMENT


async def test_an_unknown_format_is_rejected(house: House, stub: "Stub") -> None:
    await play(stub, house.prompt("go", "s1"))
    assert (await refused(exported(stub, "s1", 9)))[0] is S.INVALID_ARGUMENT


async def test_exports_contain_no_secrets(tmp_path: Path) -> None:
    import msgspec

    from yarrow.service.servicer import Servicer

    house = House(tmp_path, [[{"text": "the key is hunter2hunter2"}]])
    house.servicer = Servicer(msgspec.structs.replace(house.parts, secret_values=lambda: ("hunter2hunter2",)))
    async with stub_of(house) as stub:
        await play(stub, house.prompt("go", "s1"))
        for export_format in (pb.EXPORT_FORMAT_JSONL, pb.EXPORT_FORMAT_HTML):
            data = await exported(stub, "s1", export_format)
            assert b"hunter2" not in data
            assert b"[redacted]" in data
