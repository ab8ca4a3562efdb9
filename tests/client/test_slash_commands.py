"""The command table against the real service: what each command answers, where one goes on, and what is refused."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from doubles.house import House, play, reason_of, stub_of
from doubles.rig import call
from yarrow.client import session_descriptions
from yarrow.client.session_export import FilePathError
from yarrow.client.session_slash_commands import COMMANDS, is_command, run_command, run_line
from yarrow.client.slash_command import CommandContext, CommandError, CommandFailedError, CommandResult
from yarrow.client.stub import Stub
from yarrow.config.settings import CompactionSettings
from yarrow.v1 import agent_pb2 as pb

LONG = "The quick brown fox jumps over the lazy dog again and again. " * 160
NOTES = [{"text": "NOTES of a model"}, {"usage": {"input": 5, "output": 3}}]
ALL = ["go", "a", "one", "b", "more", "c"]


@pytest.fixture
def house(tmp_path: Path) -> House:
    turns: list[list[dict[str, Any]]] = [
        [{"text": "a"}, call("echo", "one")],
        [{"text": "b"}, {"usage": {"input": 1200, "output": 3}}],
        [{"text": "c"}],
        NOTES,
        NOTES,
        NOTES,
    ]
    return House(tmp_path, turns, compaction=CompactionSettings(reserve_tokens=1000, keep_recent_tokens=1500))


@pytest.fixture
async def here(house: House) -> AsyncGenerator[CommandContext]:
    """At a session of six messages: go, a with a call, its result, b, more, c."""
    async with stub_of(house) as stub:
        await play(stub, house.prompt("go", "s1-first0"))
        await play(stub, house.prompt("more", "s1-first0"))
        yield CommandContext(stub, "s1-first0", str(house.cwd))


async def texts(stub: Stub, session_id: str) -> list[str]:
    messages = (await stub.GetMessages(pb.GetMessagesRequest(session_id=session_id))).messages
    return ["".join(block.text.text for block in message.content) for message in messages]


async def wrong(here: CommandContext, line: str) -> str:
    with pytest.raises(CommandError) as caught:
        await run_line(here, line)
    return str(caught.value)


async def wrong_path(here: CommandContext, line: str) -> str:
    with pytest.raises(FilePathError) as caught:
        await run_line(here, line)
    return str(caught.value)


async def refused(here: CommandContext, line: str) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await run_line(here, line)
    return reason_of(caught.value)


def check_made(answer: CommandResult, how: str) -> None:
    assert answer.text.startswith(f"{how} {answer.session_id[-8:]}")


# ---- branch, fork, rebase, merge ----


@pytest.mark.parametrize(
    ("line", "kept"),
    [("/branch", ALL), ("/branch 3", ALL[:4]), ("/branch -2", ALL[:5]), ("/branch  0 ", ALL[:1]), ("branch", ALL)],
)
async def test_branch(here: CommandContext, line: str, kept: list[str]) -> None:
    answer = await run_line(here, line)
    check_made(answer, "Branched to")
    assert await texts(here.stub, answer.session_id) == kept
    assert await texts(here.stub, here.session_id) == ALL


@pytest.mark.parametrize("word", ["x", "1.5", "1 2", "", "99999999999", "-99999999999", "٣x"])
async def test_branch_with_an_invalid_index(here: CommandContext, word: str) -> None:
    with pytest.raises(CommandError, match="is not a message index"):
        await run_command(here, "branch", [word])


async def test_branch_with_an_index_out_of_range(here: CommandContext) -> None:
    assert await refused(here, "/branch 6") == "INVALID_ARGUMENT"
    assert await refused(here, "/branch -7") == "INVALID_ARGUMENT"


async def test_fork(here: CommandContext) -> None:
    answer = await run_line(here, "/fork")
    check_made(answer, "Forked to")
    assert await texts(here.stub, answer.session_id) == ALL
    assert await wrong(here, "/fork it") == "usage: /fork"


async def test_rebase(here: CommandContext) -> None:
    answer = await run_line(here, "/rebase 2 4")
    check_made(answer, "Rebased to")
    assert answer.text.endswith("; also kept: 1 (calls and results stay together)")
    assert await texts(here.stub, answer.session_id) == ["a", "one", "more"]
    plain = await run_line(here, "/rebase 5 4")
    assert "stay together" not in plain.text
    assert await texts(here.stub, plain.session_id) == ["more", "c"]


@pytest.mark.parametrize("line", ["/rebase 4 5 --squash", "/rebase --squash 4 5"])
async def test_rebase_with_a_squash(here: CommandContext, line: str) -> None:
    first, *rest = await texts(here.stub, (await run_line(here, line)).session_id)
    assert first.endswith("NOTES of a model")
    assert rest == ["more", "c"]


async def test_an_invalid_rebase_is_rejected(here: CommandContext) -> None:
    assert "count from 0" in await wrong(here, "/rebase -1")
    assert "'--squish' is not a message index" in await wrong(here, "/rebase 1 --squish")
    assert "usage: /rebase INDEX..." in await wrong(here, "/rebase")
    assert await refused(here, "/rebase 1 1") == "INVALID_ARGUMENT"
    assert await refused(here, "/rebase 6") == "INVALID_ARGUMENT"
    assert "Can't parse" in await wrong(here, '/rebase "1')


@pytest.mark.parametrize("summary", [False, True])
async def test_merge(house: House, here: CommandContext, summary: bool) -> None:
    await play(here.stub, house.prompt("aside", "s2-second"))
    await here.stub.ConfigureSession(pb.ConfigureSessionRequest(session_id="s2-second", name="the other"))
    answer = await run_line(here, "/merge 'the other'" + " --summary" * summary)
    check_made(answer, "Merged 2-second; continuing in")
    merged = await texts(here.stub, answer.session_id)
    assert merged[:6] == ALL
    assert ("aside" in merged) is not summary
    assert len(merged) == (9 if summary else 10)


async def test_an_invalid_merge_is_rejected(here: CommandContext) -> None:
    assert await wrong(here, "/merge") == "usage: /merge SESSION [--summary]"
    assert await wrong(here, "/merge --summary") == "usage: /merge SESSION [--summary]"
    assert await wrong(here, "/merge a b") == "usage: /merge SESSION [--summary]"
    assert await wrong(here, "/merge a b c") == "usage: /merge SESSION [--summary]"
    assert await refused(here, "/merge nobody-there") == "SESSION_UNKNOWN"
    assert await refused(here, f"/merge {here.session_id}") == "INVALID_ARGUMENT"


# ---- compact, stats, show, name ----


async def test_compact_takes_the_rest_of_the_line(house: House, here: CommandContext) -> None:
    for _ in range(2):
        await play(here.stub, house.prompt(LONG, here.session_id))
    answer = await run_line(here, "/compact Mind the \"foxes, and don't forget it.")
    before, after = [int(word.replace(",", "")) for word in answer.text.split() if word.replace(",", "").isdigit()]
    assert replace(answer, response=None) == CommandResult(f"Compacted the context from {before:,} to {after:,} tokens")
    assert 0 < after < before
    request = (await house.scripted()).requests[-1]
    assert "Mind the \"foxes, and don't forget it." in request.system + request.messages[-1].text


async def test_nothing_to_compact(here: CommandContext) -> None:
    assert await refused(here, "/compact") == "NOTHING_TO_COMPACT"


async def test_a_failed_compaction_is_reported(tmp_path: Path) -> None:
    failure = [{"error": {"code": "AUTH", "message": "no key"}}]
    house = House(
        tmp_path, [[{"text": "a"}], [{"text": "b"}], failure], compaction=CompactionSettings(True, 1000, 1500)
    )
    async with stub_of(house) as stub:
        for _ in range(2):
            await play(stub, house.prompt(LONG, "s1"))
        with pytest.raises(CommandFailedError, match=r"Compaction failed: .*no key") as caught:
            await run_line(CommandContext(stub, "s1", str(house.cwd)), "/compact")
        assert caught.value.code == "AUTH"
        assert await texts(stub, "s1") == [LONG, "a", LONG, "b"]


async def test_stats(here: CommandContext) -> None:
    lines = (await run_line(here, "/stats")).text.splitlines()
    assert lines[0] == f"session    {here.session_id}"
    assert "tool       echo: 1 call, 0.0 s, about 5 tokens" in lines
    assert any(line.startswith("model      scripted: 3 requests, 1,200 in, 3 out") for line in lines)
    assert not any(line.startswith(("skipped", "dropped")) for line in lines)
    assert await wrong(here, "/stats all") == "usage: /stats"


async def test_show(here: CommandContext) -> None:
    assert (await run_line(here, "/show")).text == (
        "[0] user\n    go\n\n[1] assistant\n    a\n> echo: text=one\n\n[2] tool echo\n    one\n\n"
        "[3] assistant\n    b\n\n[4] user\n    more\n\n[5] assistant\n    c"
    )
    made = await here.stub.NewSession(pb.NewSessionRequest(cwd=here.cwd))
    assert (await run_line(CommandContext(here.stub, made.session_id, here.cwd), "/show")).text == "No messages yet"


async def test_show_reads_every_page(house: House, here: CommandContext) -> None:
    """One response holds 16 MiB; a history is shown whole."""
    for letter in "xyz":
        await play(here.stub, house.prompt(letter * 4_000_000, "big"))
        await play(here.stub, house.prompt(letter * 4_000_000, "big"))
    shown = (await run_line(CommandContext(here.stub, "big", here.cwd), "/show")).text
    assert [line.partition("]")[0] for line in shown.splitlines() if line.startswith("[")] == [
        f"[{index}" for index in range(12)
    ]


async def test_name(here: CommandContext) -> None:
    assert await run_line(here, "/name  two  words ") == CommandResult("Named this session two  words")
    state = await here.stub.GetState(pb.GetStateRequest(session_id="two  words"))
    assert state.session_id == here.session_id
    assert await wrong(here, "/name") == "usage: /name NAME"
    assert await refused(here, "/name " + "x" * 300) == "INVALID_ARGUMENT"


# ---- resume, tree ----


@pytest.mark.parametrize("word", ["s1-first0", "s1-f", "rst0", "Some Name"])
async def test_resume(here: CommandContext, word: str) -> None:
    await run_line(here, "/name Some Name")
    assert await run_line(here, f"/resume {word}") == CommandResult("Resumed 1-first0", "s1-first0")


async def test_an_invalid_resume_is_rejected(house: House, here: CommandContext) -> None:
    assert "/tree lists them" in await wrong(here, "/resume")
    assert await refused(here, "/resume nobody") == "SESSION_UNKNOWN"
    assert await refused(here, "/resume ../../etc/passwd") == "SESSION_UNKNOWN"
    await play(here.stub, house.prompt("x", "s1-first1"))
    assert await refused(here, "/resume s1-first") == "INVALID_ARGUMENT"


async def test_tree(house: House, here: CommandContext) -> None:
    for index in (0, 3):
        await run_line(here, f"/branch {index}")
    shown = (await run_line(here, "/tree")).text.splitlines()
    assert [line[:3] for line in shown] == ["1-f", "├─ ", "└─ "]
    assert all(line.endswith("  go") for line in shown)
    elsewhere = CommandContext(here.stub, "", str(house.home))
    assert (await run_line(elsewhere, "/tree")).text == "No saved sessions"
    assert (await run_line(elsewhere, "/tree all")).text.splitlines() == shown
    assert await wrong(here, "/tree everything") == "usage: /tree [all]"


def node(title: str, indent: int = 0, gutters: tuple[bool, ...] = (), *, last: bool = True, mark: str = "") -> Any:
    session = pb.SessionSummary(session_id=f"long-id-{title}", title=title)
    return pb.SessionTreeNode(session=session, indent=indent, gutters=gutters, last=last, mark=mark)


def of(child: Any, parent: str) -> Any:
    child.session.parent_id = f"long-id-{parent}"
    return child


def test_a_known_tree_is_drawn() -> None:
    nodes = [
        node("oneone00"),
        of(node("branch00", 1, last=False), "oneone00"),
        of(node("child000", 1, (True,)), "branch00"),
        node("leafleaf", 2, (True,), last=False),
        node("leafleag", 2, (True,)),
        node("branch01", 1),
        of(node("below000", 1, (False,)), "branch01"),
        of(node("orphan00", mark="parent missing"), "gonegone"),
        node("circle00", mark="cycle"),
    ]
    time = session_descriptions.format_time(0)
    assert session_descriptions.format_tree(nodes).splitlines() == [
        f"oneone00  {time}  oneone00",
        f"├─ branch00  {time}  branch00",
        f"│  child000  {time}  child000  (child of branch00)",
        f"│  ├─ leafleaf  {time}  leafleaf",
        f"│  └─ leafleag  {time}  leafleag",
        f"└─ branch01  {time}  branch01",
        f"   below000  {time}  below000  (child of branch01)",
        f"orphan00  {time}  orphan00  (parent missing)",
        f"circle00  {time}  circle00  (cycle)",
    ]


def test_a_title_is_one_short_sanitized_line() -> None:
    shown = session_descriptions.format_list(
        [pb.SessionSummary(session_id="x" * 20, title="a\n\x1b[2J\x9b31m\u202eb " + "long " * 40)]
    )
    assert shown.count("\n") == 1
    assert len(shown) < 110
    assert not set(shown) & {"\x1b", "\x9b", "\u202e", "\r"}
    assert shown.rstrip("\n").endswith("…")


# ---- export, import ----


async def test_export_and_import(house: House, here: CommandContext) -> None:
    answer = await run_line(here, "/export kept of it.jsonl")
    path = house.cwd / "kept of it.jsonl"
    data = path.read_bytes()
    assert answer == CommandResult(f"Exported to {path} ({session_descriptions.format_size(len(data))})")
    assert [json.loads(line)["kind"] for line in data.splitlines()][:2] == ["header", "message"]
    assert list(house.cwd.iterdir()) == [path]
    taken = await run_line(here, "/import kept of it.jsonl")
    check_made(taken, "Imported as")
    assert taken.session_id != here.session_id
    assert await texts(here.stub, taken.session_id) == ALL
    path.write_bytes(data + b"torn\n")
    assert (await run_line(here, f"/import {path}")).text.endswith("; unreadable lines skipped: 1")


async def test_export_as_a_page(house: House, here: CommandContext) -> None:
    target = house.cwd / "Page.HTML"
    target.write_text("what was there")
    await run_line(here, f"/export {target}")
    assert target.read_text().startswith("<!doctype html>")


async def test_an_export_path_expands_a_tilde(
    here: CommandContext, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(house.home))
    await run_line(here, "/export ~/x.jsonl")
    assert (house.home / "x.jsonl").stat().st_size > 0


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("/export x.txt", "must end in .jsonl or .html"),
        ("/export .jsonl", "must end in .jsonl or .html"),
        ("/export folder.jsonl", "is a directory"),
        ("/export missing/x.jsonl", "No such file"),
        ("/export plain/x.html", "Not a directory"),
        ("/import missing.jsonl", "No such file"),
        ("/import folder.jsonl", "directory"),
        ("/import plain/x", "Not a directory"),
    ],
)
async def test_an_invalid_path_is_reported_and_nothing_is_written(
    house: House, here: CommandContext, line: str, named: str
) -> None:
    (house.cwd / "folder.jsonl").mkdir()
    (house.cwd / "plain").write_text("")
    said = await wrong_path(here, line)
    assert named in said
    assert str(house.cwd) in said
    assert sorted(path.name for path in house.cwd.rglob("*")) == ["folder.jsonl", "plain"]


async def test_paths_are_required(here: CommandContext) -> None:
    assert "usage: /export PATH" in await wrong(here, "/export")
    assert await wrong(here, "/import") == "usage: /import PATH"
    with pytest.raises(CommandError, match="usage: /export PATH"):
        await run_command(here, "export", ["a.jsonl", "b.jsonl"])


async def test_a_failed_export_keeps_the_existing_file(house: House, here: CommandContext) -> None:
    target = house.cwd / "x.jsonl"
    target.write_text("before")
    gone = CommandContext(here.stub, "nobody", here.cwd)
    assert await refused(gone, "/export x.jsonl") == "SESSION_UNKNOWN"
    assert target.read_text() == "before"
    assert list(house.cwd.iterdir()) == [target]


async def test_a_file_that_is_not_a_session_is_not_imported(house: House, here: CommandContext) -> None:
    (house.cwd / "page.html").write_text("<html>")
    (house.cwd / "empty").write_text("")
    before = set(house.sessions.rglob("*"))
    for name, what in (("page.html", "not an exported session but an HTML page"), ("empty", "the data is empty")):
        with pytest.raises(FilePathError) as caught:
            await run_line(here, f"/import {name}")
        assert str(caught.value).startswith(f"{house.cwd / name}: ")
        assert what in str(caught.value)
    assert set(house.sessions.rglob("*")) == before


# ---- the table ----


@pytest.mark.parametrize("name", ["branch", "fork", "rebase", "compact", "export", "stats", "show", "name", "merge"])
async def test_an_unknown_session_is_reported(here: CommandContext, name: str) -> None:
    words = {"rebase": ["1"], "export": ["x.jsonl"], "name": ["x"], "merge": [here.session_id]}
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await run_command(CommandContext(here.stub, "nobody", here.cwd), name, words.get(name, []))
    assert reason_of(caught.value) == "SESSION_UNKNOWN"


async def test_an_unknown_command_is_reported(here: CommandContext) -> None:
    assert await wrong(here, "/brunch") == "Unknown command /brunch. Did you mean /branch?"
    assert "Commands: /branch, /fork" in await wrong(here, "/zzz")
    assert "Unknown command /" in await wrong(here, "/")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_usage(name: str) -> None:
    assert is_command(f"/{name}")
    assert is_command(f"/{name} with words")
    assert is_command(f"/{name}\n")
    assert COMMANDS[name].help[0].islower()
    assert bool(COMMANDS[name].usage) == bool(COMMANDS[name].max_words)


@pytest.mark.parametrize(
    "line",
    ["", "/", "/ ", "/ branch", "branch", " /branch", "//branch", "/Branch", "/branchy", "/branch\nmore", "x /branch"],
)
def test_texts_that_are_not_commands(line: str) -> None:
    assert not is_command(line)


@given(st.text(max_size=20), st.sampled_from(list(COMMANDS)))
def test_a_prompt_that_contains_a_name_is_not_a_command(text: str, name: str) -> None:
    assert not is_command(f"x{text}/{name}")
    assert not is_command(f"/{name}x{text}")
    assert is_command(f"/{name} {' '.join(text.split())}")
