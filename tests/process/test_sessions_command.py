"""Saved sessions on the real command line: `yarrow sessions`, `--export`, and commands in the place of a prompt."""

import asyncio
import contextlib
import json
import math
import os
import pty
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from doubles.screen import Screen
from doubles.world import World
from yarrow.cli.sessions_command import TERMINAL_COMMANDS
from yarrow.client.conversation import CHAT_COMMANDS
from yarrow.client.session_listing import SESSION_COMMANDS
from yarrow.client.session_slash_commands import COMMANDS
from yarrow.message import Message
from yarrow.session.ids import new_id
from yarrow.session.line_codec import encode_line
from yarrow.session.record import Header
from yarrow.session.session_file_reader import MAX_LINE_CHARACTERS, load_session

LOOK: list[dict[str, Any]] = [{"text": "Let me look."}, {"call": {"name": "ls", "arguments": {}}}]
NOW = "2026-11-28T00:38:13.123Z"
HOSTILE = "one\x1b[2J\x1b]0;title\x07\x9b31m\u202e two"
STEERING = {"\x1b", "\x07", "\x9b", "\u202e", "\r"}


@pytest.fixture
async def told(world: World) -> str:
    """A session of four messages; its id."""
    world.script(LOOK, [{"text": "Nothing."}], [{"text": "NOTES"}], [{"text": "NOTES"}])
    assert (await world.run("what is here?")).code == 0
    return world.session_files()[0].stem


@contextlib.asynccontextmanager
async def served(world: World, folder: Path) -> AsyncGenerator[str]:
    socket = str(folder / "run" / "yarrow.sock")
    process = await world.start("serve", "--socket", socket)
    assert process.stderr is not None
    assert b"listening" in await asyncio.wait_for(process.stderr.readline(), 30)
    try:
        yield socket
    finally:
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0


def texts(path: Path) -> list[str]:
    return [stored.value.text for stored in load_session(path).records if isinstance(stored.value, Message)]


def file_of(world: World, part: str) -> Path:
    (path,) = [path for path in world.session_files() if path.stem.endswith(part)]
    return path


def saved(world: World, session_id: str, *, parent: str | None = None, cwd: Path | None = None, name: str = "") -> Path:
    """Write the file of a session with a header alone, in the project's own directory."""
    folder = world.session_files()[0].parent
    path = folder / f"{session_id}.jsonl"
    cwd = cwd or world.project
    path.write_bytes(
        encode_line(Header(id=session_id, parent_id=parent, cwd=str(cwd), name=name, created_at=NOW, updated_at=NOW))
    )
    return path


# ---- yarrow sessions ----


async def test_an_empty_list_of_sessions(world: World) -> None:
    world.script()
    for words in ([], ["list"], ["all"], ["search", "x", "--json"]):
        ended = await world.run("sessions", *words)
        assert (ended.code, ended.out) == (0, "")
        assert ended.err == ('yarrow: No sessions match "x"\n' if "x" in words else "")
    assert (await world.run("sessions", "tree")).out == "No saved sessions\n"
    assert not world.session_files()


async def test_a_list_as_text_and_as_json(world: World, told: str, tmp_path: Path) -> None:
    (row,) = (await world.run("sessions")).out.splitlines()
    assert row.startswith(told[-8:])
    assert row.endswith("  what is here?")
    (entry,) = (await world.run("sessions", "--json")).lines
    assert (entry["sessionId"], entry["title"], entry["cwd"]) == (told, "what is here?", str(world.project))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert (await world.run("sessions", cwd=elsewhere)).out == ""
    assert (await world.run("sessions", "all", cwd=elsewhere)).out.splitlines() == [row]
    assert [one["sessionId"] for one in (await world.run("sessions", "all", "--json", cwd=elsewhere)).lines] == [told]


async def test_search(world: World, told: str) -> None:
    row, line = (await world.run("sessions", "search", "NOTHING.")).out.splitlines()
    assert (row[:8], row[-13:], line.strip()) == (told[-8:], "what is here?", "Nothing.")
    assert (await world.run("sessions", "search", "what", "is")).out == f"{row}\n"
    nothing = await world.run("sessions", "search", "zebra")
    assert (nothing.code, nothing.out) == (0, "")
    assert nothing.err == 'yarrow: No sessions match "zebra"\n'
    (entry,) = (await world.run("sessions", "search", "look", "--json")).lines
    assert (entry["sessionId"], entry["found"]) == (told, "Let me look.")
    assert (await world.run("sessions", "name", told, "The Zebra Crossing")).code == 0
    (named,) = (await world.run("sessions", "search", "zebra c")).out.splitlines()
    assert (named[:8], named[-20:]) == (told[-8:], "  The Zebra Crossing")


async def test_a_long_line_is_truncated_around_the_match(world: World) -> None:
    world.script([{"text": "Nothing."}])
    assert (await world.run(f"first\n{'a ' * 200}needle{' z' * 200}\nlast")).code == 0
    _, line = (await world.run("sessions", "search", "NEEDLE")).out.splitlines()
    assert "a needle z" in line
    assert len(line.strip()) <= MAX_LINE_CHARACTERS + 2


async def test_sessions_with_the_same_title_are_distinguished(world: World, told: str) -> None:
    child = (await world.run("-c", "--json", "/branch")).lines[1]["sessionId"]
    other, first = (await world.run("sessions")).out.splitlines()
    assert other.startswith(child[-8:])
    assert other.endswith(f"  what is here?  (child of {told[-8:]})")
    assert [len(row.split("  ")[1]) for row in (other, first)] == [len("2026-11-28 20:00:00")] * 2


async def test_each_subcommand_for_one_session(world: World, told: str, tmp_path: Path) -> None:
    part = told[-8:]
    assert (await world.run("sessions", "show", part)).out.startswith(
        "[0] user\n    what is here?\n\n[1] assistant\n    Let me"
    )
    assert (await world.run("sessions", "stats", part)).out.startswith(f"session    {told}\n")
    assert (await world.run("sessions", "name", part, "a name")).out == "Named this session a name\n"
    assert (await world.run("sessions", "branch", "a name", "0")).out.startswith("Branched to ")
    assert (await world.run("sessions", "fork", told)).out.startswith("Forked to ")
    assert (await world.run("sessions", "rebase", part, "0", "3")).out.startswith("Rebased to ")
    branch = next(
        path
        for path in world.session_files()
        if load_session(path).header.parent_id and texts(path) == ["what is here?"]
    )
    merged = await world.run("sessions", "merge", branch.stem, told)
    assert merged.out.startswith(f"Merged {part}; continuing in ")
    assert merged.out.endswith("\n\nLet me look.\n")
    target = tmp_path / "x.html"
    assert (await world.run("sessions", "export", part, str(target))).out.startswith(f"Exported to {target}")
    assert len(world.session_files()) == 5
    tree = (await world.run("sessions", "tree")).out.splitlines()
    assert len(tree) == 5
    assert any("└─ " in line for line in tree)
    compacted = await world.run("sessions", "compact", part)
    assert (compacted.code, compacted.out) == (1, "")
    assert "nothing to compact yet" in compacted.err


async def test_import_and_delete(world: World, told: str, tmp_path: Path) -> None:
    target = tmp_path / "my export.jsonl"
    assert (await world.run("sessions", "export", told, str(target))).code == 0
    taken = (await world.run("sessions", "import", str(target))).out
    assert taken.startswith("Imported as ")
    made = taken.split()[-1]
    assert texts(file_of(world, made)) == texts(file_of(world, told))
    gone = await world.run("sessions", "delete", made, told[-8:])
    assert (gone.code, gone.out) == (0, f"Deleted {made}\nDeleted {told[-8:]}\n")
    assert not world.session_files()
    assert (await world.run("sessions", "delete", made)).code == 2


async def test_a_delete_with_an_unknown_id_deletes_none(world: World, told: str) -> None:
    assert (await world.run("sessions", "delete", told, "nobody-there")).code == 2
    assert len(world.session_files()) == 1


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (["lst"], 2, "yarrow sessions tree"),
        (["delete"], 2, "yarrow sessions delete ID"),
        (["search"], 2, "yarrow sessions search TEXT"),
        (["show"], 2, "usage: yarrow sessions show ID"),
        (["merge"], 2, "usage: yarrow sessions merge ID SESSION [--summary]"),
        (["show", "nobody-there"], 2, "'nobody-there'; run yarrow sessions all to list them"),
        (["show", "../../../etc/passwd"], 2, "etc/passwd"),
        (["branch", "SELF", "x"], 2, "'x' is not a message index"),
        (["branch", "SELF", "99"], 2, "yarrow: this session has no message 99: valid numbers are 0 to 3, or -1"),
        (["rebase", "SELF", "99"], 2, "yarrow: this session has no message 99: valid numbers are 0 to 3\n"),
        (["merge", "SELF", "SELF"], 2, " into itself: choose another session"),
        (["export", "SELF"], 2, "usage: yarrow sessions export ID PATH"),
        (["name", "SELF"], 2, "usage: yarrow sessions name ID NAME"),
        (["rebase", "SELF"], 2, "usage: yarrow sessions rebase ID INDEX..."),
        (["export", "SELF", "x.txt"], 2, "must end in .jsonl or .html"),
        (["import", "missing.jsonl"], 2, "missing.jsonl"),
        (["import"], 2, "usage: yarrow sessions import PATH"),
        (["tree", "everything"], 2, "usage: yarrow sessions tree [all]"),
    ],
)
async def test_invalid_subcommands(world: World, told: str, words: list[str], code: int, named: str) -> None:
    ended = await world.run("sessions", *(told if word == "SELF" else word for word in words))
    assert (ended.code, ended.out) == (code, "")
    assert named in ended.err
    assert not list(world.project.iterdir())


@pytest.mark.parametrize("name", SESSION_COMMANDS)
async def test_every_subcommand_requires_a_session(world: World, name: str) -> None:
    world.script()
    ended = await world.run("sessions", name)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"yarrow: usage: yarrow sessions {name} ID")


# ---- --export ----


async def test_export_of_the_latest_of_one_and_of_no_session(world: World, told: str, tmp_path: Path) -> None:
    assert (await world.run("second")).code == 0
    newest = next(path for path in world.session_files() if path.stem != told)
    for number, (flags, expected) in enumerate([([], newest.stem), (["-c"], newest.stem), (["-r", told[-8:]], told)]):
        target = tmp_path / f"x{number}.jsonl"
        ended = await world.run("--export", str(target), *flags)
        assert (ended.code, ended.out) == (0, "")
        latest, other = f"the latest session ({expected[-8:]}) ", "; use -r ID for another"
        latest, other = ("", "") if "-r" in flags else (latest, other)
        size = math.ceil(target.stat().st_size / 1000)
        assert ended.err == f"yarrow: exported {latest}to {target} ({size:,} kB){other}\n"
        assert load_session(target).header.id == expected
        assert target.stat().st_mode & 0o077 == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert (await world.run("--export", "y.jsonl", cwd=elsewhere)).code == 2
    assert (await world.run("--export", "y.html", "-r", told, cwd=elsewhere)).code == 0
    assert (elsewhere / "y.html").read_text().startswith("<!doctype html>")
    assert list(elsewhere.iterdir()) == [elsewhere / "y.html"]


async def test_export_below_a_symlinked_directory(world: World, told: str, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert (await world.run("--export", str(tmp_path / "link" / "x.jsonl"))).code == 0
    assert texts(tmp_path / "real" / "x.jsonl")[0] == "what is here?"


async def test_export_replaces_atomically(world: World, told: str, tmp_path: Path) -> None:
    target = tmp_path / "x.jsonl"
    target.write_text("before")
    other = tmp_path / "other"
    other.hardlink_to(target)
    assert (await world.run("--export", str(target))).code == 0
    assert other.read_text() == "before", "what was there was written over, not replaced"


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("folder.jsonl", "is a directory"),
        ("folder.jsonl/", "is a directory"),
        ("missing/x.jsonl", "No such file or directory"),
        ("plain/x.jsonl", "Not a directory"),
        ("x.pdf", "must end in .jsonl or .html"),
        ("x", "must end in .jsonl or .html"),
        ("/sys/x.jsonl", "cannot write"),
        ("/dev/null/x.html", "Not a directory"),
    ],
)
async def test_export_to_an_unwritable_path(world: World, told: str, path: str, named: str) -> None:
    (world.project / "folder.jsonl").mkdir()
    (world.project / "plain").write_text("")
    ended = await world.run("--export", path)
    assert (ended.code, ended.out) == (2, "")
    assert named in ended.err
    assert sorted(found.name for found in world.project.rglob("*")) == ["folder.jsonl", "plain"]


async def test_export_onto_a_full_disk_keeps_the_existing_file(world: World, told: str) -> None:
    target = world.project / "x.html"
    target.write_text("before")
    # Coverage measurement writes files too, and could not.
    world.environment = {name: text for name, text in world.environment.items() if not name.startswith("COVERAGE")}
    ended = await world.run(
        "--export", "x.html", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))
    )
    assert (ended.code, ended.out) == (2, "")
    assert "File too large" in ended.err
    assert target.read_text() == "before"
    assert list(world.project.iterdir()) == [target]


# ---- commands in the place of a prompt ----


async def test_a_command_in_place_of_a_prompt(world: World, told: str) -> None:
    assert (await world.run("-c", "/stats")).out.startswith(f"session    {told}\n")
    assert (await world.run("-r", told[-8:], "-p", "/show")).out.startswith("[0] user\n    what is here?\n")
    header, answer = (await world.run("-c", "--json", "/branch 1")).lines
    assert (header["type"], header["schemaVersion"], header["sessionId"]) == ("header", 1, told)
    assert (header["cwd"], header["versions"]["protocol"]) == (str(world.project), "yarrow.v1")
    made = answer["sessionId"]
    assert (answer["type"], answer["name"]) == ("command", "branch")
    assert answer["text"] == f"Branched to {made[-8:]}"
    assert texts(file_of(world, made)) == ["what is here?", "Let me look."]
    assert [one["sessionId"] for one in (await world.run("-r", told, "--json", "/stats")).lines] == [told, told]
    assert texts(file_of(world, told))[-1] == "Nothing."


async def test_case_RM_12_a_command_has_fields_for_programs(world: World, told: str) -> None:
    async def result(*arguments: str) -> dict[str, Any]:
        return (await world.run("--json", *arguments)).lines[1]["result"]

    stats = await result("-c", "/stats")
    assert (stats["sessionId"], int(stats["contextTokens"]) > 0) == (told, True)
    assert [(tool["name"], tool["count"]) for tool in stats["tools"]] == [("ls", 1)]
    shown = await result("-r", told, "/show")
    assert [one["role"] for one in shown["messages"]] == ["ROLE_USER", "ROLE_ASSISTANT", "ROLE_TOOL", "ROLE_ASSISTANT"]
    assert [node["session"]["sessionId"] for node in (await result("/tree"))["nodes"]] == [told]
    made = await result("-r", told, "/rebase 2")
    assert made["added"] == [1]
    assert file_of(world, made["sessionId"])
    name = (await world.run("--json", "-r", told, "/name shop")).lines[1]
    assert (name["text"], "result" in name) == ("Named this session shop", False)


async def test_a_torn_record_costs_only_itself(world: World, told: str) -> None:
    path = file_of(world, told)
    first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + rest[0][:70] + b"".join(rest).replace(b"\n", b"\0", 1))
    shown = await world.run("-c", "/show")
    assert shown.out.startswith("[0] user\n    what is here?\n")
    assert "[3] assistant\n    Nothing." in shown.out
    assert (await world.run("-c", "go on")).code == 0
    assert texts(path)[:1] + texts(path)[-2:-1] == ["what is here?", "go on"]


async def test_commands_without_a_session(world: World, told: str) -> None:
    assert told[-8:] in (await world.run("/tree")).out
    header, answer = (await world.run("--json", "/tree all")).lines
    assert (header["type"], header["sessionId"], answer["sessionId"]) == ("header", "", "")
    assert told[-8:] in answer["text"]
    assert (await world.run(f"/resume {told[-8:]}")).out == f"Resumed {told[-8:]}\n"
    assert (await world.run("--export", "out.jsonl")).code == 0
    assert (await world.run("/import out.jsonl")).out.startswith("Imported as ")
    assert len(world.session_files()) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["/stats"], 2, "needs a session: use -r ID, or -c for the latest"),
        (["-r", "nobody-there", "/stats"], 2, "nobody-there"),
        (["-c", "/branch x"], 2, "is not a message index"),
        (["-c", "/branch 99"], 2, "99"),
        (["-c", "/fork it"], 2, "usage: /fork"),
        (["-c", "/compact"], 1, "nothing to compact yet"),
        (["-c", "/export x.doc"], 2, "must end in .jsonl or .html"),
        (["-c", "/merge"], 2, "usage: /merge SESSION"),
        (["/import missing.jsonl"], 2, "missing.jsonl"),
    ],
)
async def test_invalid_commands(world: World, told: str, arguments: list[str], code: int, named: str) -> None:
    for flags in ([], ["--json"]):
        ended = await world.run(*flags, *arguments)
        assert (ended.code, ended.out) == (code, "")
        assert named in ended.err
    assert len(world.session_files()) == 1


async def test_commands_through_a_running_service(world: World, told: str, tmp_path: Path) -> None:
    async with served(world, tmp_path) as socket:
        attach = ["--attach", socket]
        assert (await world.run("sessions", *attach)).out.startswith(told[-8:])
        assert (await world.run("sessions", "--json", *attach)).lines[0]["active"] is False
        assert (await world.run(*attach, "-c", "/stats")).out.startswith(f"session    {told}\n")
        assert (await world.run("sessions", "--json", *attach)).lines[0]["active"] is True
        answer = (await world.run(*attach, "-c", "--json", "/fork")).lines[1]
        assert texts(file_of(world, answer["sessionId"])) == texts(file_of(world, told))
        assert (await world.run(*attach, "--export", "x.jsonl", "-r", told)).code == 0
        assert load_session(world.project / "x.jsonl").header.id == told
        taken = await world.run("sessions", "import", "x.jsonl", *attach)
        assert taken.out.startswith("Imported as ")
        assert (await world.run("sessions", "delete", taken.out.split()[-1], *attach)).code == 0
        refused = await world.run("sessions", "show", "nobody-there", *attach)
        assert (refused.code, refused.out) == (2, "")
    assert (await world.run("sessions", *attach)).code == 3


# ---- what a terminal and a pipe are sent ----


async def test_titles_and_names_are_sanitized(world: World, told: str) -> None:
    saved(world, new_id(), name=HOSTILE)
    world.script([{"text": HOSTILE}])
    assert (await world.run(HOSTILE)).code == 0
    session = next(path.stem for path in world.session_files() if HOSTILE in texts(path))
    for arguments in (
        ["sessions"],
        ["sessions", "--json"],
        ["sessions", "tree"],
        ["/tree"],
        ["sessions", "show", session],
        ["sessions", "search", "two"],
        ["sessions", "show", "one\x1b[2J"],
    ):
        ended = await world.run(*arguments)
        assert not STEERING & set(ended.out + ended.err), arguments
        out = await on_terminal(world, *arguments)
        assert not STEERING & set(out.replace("\r\n", "\n")), arguments


async def on_terminal(world: World, *arguments: str) -> str:
    """Bytes sent to a terminal."""
    reading, writing = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "yarrow", *arguments,
        cwd=world.project, env=world.environment, stdin=writing, stdout=writing, stderr=writing,
    )  # fmt: skip
    os.close(writing)
    data = b""
    try:
        while piece := await asyncio.to_thread(read_terminal, reading):
            data += piece
        assert await asyncio.wait_for(process.wait(), 60) in (0, 2)
    finally:
        os.close(reading)
    return data.decode()


def read_terminal(descriptor: int) -> bytes:
    """Wait for what comes next; nothing when the other end is closed."""
    with contextlib.suppress(OSError):
        return os.read(descriptor, 65536)
    return b""


async def test_a_closed_pipe_is_not_an_error(world: World, told: str) -> None:
    command = f"{sys.executable} -m yarrow sessions all; echo $? >&2"
    for reader in ("head -0", "true", "head -1"):
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", f"({command}) | {reader}", cwd=world.project, env=world.environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        _, err = await asyncio.wait_for(process.communicate(), 60)
        assert err == b"0\n", reader


async def test_a_closed_standard_output_is_not_an_error(world: World, told: str) -> None:
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", f"{sys.executable} -m yarrow sessions >&-", cwd=world.project, env=world.environment,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    _, err = await asyncio.wait_for(process.communicate(), 60)
    assert b"Traceback" not in err


# ---- cases ----


async def test_case_S_05_no_project_sees_the_sessions_of_another(world: World, tmp_path: Path) -> None:
    world.script([{"text": "done"}])
    folders = [tmp_path / "t" / name for name in ("a-b", "a/b", "項目", "測試", "a_b", "a.b")]
    for folder in folders:
        folder.mkdir(parents=True)
        assert (await world.run(f"in {folder.name}", cwd=folder)).code == 0
    paths = world.session_files()
    assert len({path.parent for path in paths}) == 6
    assert sorted(load_session(path).header.cwd for path in paths) == sorted(map(str, folders))
    for folder in folders:
        for words in (["sessions"], ["sessions", "tree"], ["/tree"]):
            (row,) = (await world.run(*words, cwd=folder)).out.splitlines()
            assert row.endswith(f"  in {folder.name}")
    assert len((await world.run("sessions", "tree", "all")).out.splitlines()) == 6


async def test_case_S_07_a_cycle_of_parents_and_a_session_that_is_its_own_parent(world: World, told: str) -> None:
    for session_id, parent in (("cycle-xx", "cycle-zz"), ("cycle-yy", "cycle-xx"), ("cycle-zz", "cycle-yy")):
        saved(world, session_id, parent=parent)
    saved(world, "itself-0", parent="itself-0")
    rows = (await world.run("sessions", "tree")).out.splitlines()
    assert sorted(row[:8] for row in rows) == sorted(["cycle-xx", "cycle-yy", "cycle-zz", "itself-0", told[-8:]])
    assert sum(row.endswith("  (cycle)") for row in rows) == 4
    assert (await world.run("-r", "cycle-xx", "/stats")).code == 0


async def test_case_S_08_a_missing_parent(world: World, told: str) -> None:
    branch = (await world.run("-c", "--json", "/branch")).lines[1]["sessionId"]
    assert (await world.run("sessions", "delete", told)).code == 0
    (row,) = (await world.run("sessions", "tree")).out.splitlines()
    assert row.startswith(branch[-8:])
    assert row.endswith("  (parent missing)")
    shown = (await world.run("sessions", "show", branch)).out
    assert [line for line in shown.splitlines() if line[:3] in ("[0]", "[1]", "[2]", "[3]")] == [
        "[0] user", "[1] assistant", "[2] tool ls", "[3] assistant",
    ]  # fmt: skip
    assert (await world.run("-r", branch, "go on")).code == 0


async def test_case_S_11_a_resumed_session_works_in_its_own_directory(world: World, tmp_path: Path) -> None:
    write = [{"call": {"name": "write", "arguments": {"path": "probe.txt", "content": "x"}}}]
    world.script([{"text": "begun"}], write, [{"text": "written"}], write, [{"text": "written"}])
    assert (await world.run("begin")).code == 0
    session = world.session_files()[0].stem
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    probe = world.project / "probe.txt"
    async with served(world, tmp_path) as socket:
        for flags in ([], ["--attach", socket], ["--attach", socket]):
            ended = await world.run(*flags, "--json", "-r", session[-8:], "write it", cwd=elsewhere)
            assert ended.code == 0, ended.err
            assert ended.lines[0]["cwd"] == str(world.project)
            assert json.loads(world.session_files()[0].read_bytes().split(b"\n")[0])["cwd"] == str(world.project)
            if any("toolOutput" in line for line in ended.lines):
                assert probe.read_text() == "x"
                probe.unlink()
        assert (await world.run("-r", session, "/export here.jsonl", cwd=elsewhere)).code == 0
    assert (world.project / "here.jsonl").exists()
    assert not list(elsewhere.iterdir())


async def test_arguments_with_dashes_belong_to_the_command(world: World, told: str) -> None:
    made = await world.run("sessions", "rebase", told, "0", "--squash")
    assert made.code == 0, made.err
    assert made.out.startswith("Rebased to ")
    wrong = await world.run("sessions", "rebase", told, "0", "--squish")
    assert (wrong.code, "--squish" in wrong.err) == (2, True)
    wrong = await world.run("hello", "--squash")
    assert (wrong.code, "--squash" in wrong.err) == (2, True)


@pytest.mark.parametrize("line", ["/name \x1b[2Jx", "/export b\x1b[2J.jsonl"])
async def test_answers_cannot_control_a_terminal(world: World, told: str, line: str) -> None:
    ended = await world.run("-c", line)
    assert ended.code == 0, ended.err
    assert "\x1b" not in ended.out + ended.err


async def test_a_pipe_is_not_waited_for(world: World, told: str) -> None:
    os.mkfifo(world.project / "f.jsonl")
    for arguments in (["-c", "/import f.jsonl"], ["sessions", "import", "f.jsonl"]):
        ended = await world.run(*arguments)
        assert (ended.code, "is not a file" in ended.err) == (2, True)


async def test_a_misspelt_command_is_not_sent_to_a_model(world: World, told: str) -> None:
    ended = await world.run("-c", "/stat")
    assert (ended.code, "/stats" in ended.err) == (2, True)
    prompts = world.home / ".yarrow" / "prompts"
    prompts.mkdir()
    (prompts / "stat.md").write_text("Say it.")
    assert (await world.run("-c", "/stat")).code == 0


@pytest.mark.parametrize(
    "arguments", [["/nosuch x"], ["-c", "/nope"], ["-c", "!ls"], ["-p", "!ls -l"], ["/skill:nope"]]
)
async def test_an_unknown_command_is_not_sent_to_a_model(world: World, told: str, arguments: list[str]) -> None:
    before = texts(file_of(world, told))
    ended = await world.run(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.rstrip().endswith(" Start with a space to send it as text.")
    assert (len(world.session_files()), texts(file_of(world, told))) == (1, before)
    *flags, line = arguments
    assert (await world.run(*flags, f" {line}")).code == 0


@pytest.mark.parametrize("text", ["/usr/bin/x is missing", "/ means what?", "// a comment", "/nope\nand more", "!a\nb"])
async def test_text_that_only_resembles_a_command_is_sent(world: World, told: str, text: str) -> None:
    assert (await world.run(text)).code == 0


async def test_a_template_of_the_project_of_a_session_is_found_from_elsewhere(
    world: World, told: str, tmp_path: Path
) -> None:
    (world.project / ".yarrow" / "prompts").mkdir(parents=True)
    (world.project / ".yarrow" / "prompts" / "mine.md").write_text("Say it.")
    (world.project / ".yarrow" / "config.json").write_text("{}")
    assert (await world.run("trust", "grant")).code == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert (await world.run("-r", told, "/mine", cwd=elsewhere)).code == 0
    assert texts(file_of(world, told))[-2] == "Say it."
    assert (await world.run("/mine", cwd=elsewhere)).code == 2


async def test_a_command_after_a_flag_is_a_command(world: World, told: str, tmp_path: Path) -> None:
    root = str(world.session_files()[0].parents[1])
    (row,) = (await world.run("--session-dir", root, "sessions", "list")).out.splitlines()
    assert row.startswith(told[-8:])
    assert (await world.run("-m", "mock-2", "doctor", "json")).code == 2
    async with served(world, tmp_path) as socket:
        assert (await world.run("--attach", socket, "sessions", "delete", told)).out == f"Deleted {told[-8:]}\n"


async def test_a_terminal_ui_command_is_not_sent_to_a_model(world: World, told: str) -> None:
    assert set(TERMINAL_COMMANDS) == {*CHAT_COMMANDS} - set(COMMANDS)
    ended = await world.run("-c", "/model x")
    assert (ended.code, ended.out) == (2, "")
    assert "/model works only in the terminal UI: use -m MODEL." in ended.err
    prompts = world.home / ".yarrow" / "prompts"
    prompts.mkdir()
    (prompts / "model.md").write_text("Say it.")
    assert (await world.run("-c", "/model x")).code == 0


async def test_a_compaction_rejected_by_the_provider_has_a_runs_exit_code(world: World) -> None:
    failure = [{"error": {"code": "AUTH", "message": "no key"}}]
    compaction = {"reserveTokens": 100, "keepRecentTokens": 1}
    world.script([{"text": "a"}], [{"text": "b"}], compaction=compaction)
    assert (await world.run("word " * 3000)).code == 0
    assert (await world.run("-c", "more")).code == 0
    world.script(failure, compaction=compaction)
    ended = await world.run("-c", "/compact")
    assert (ended.code, "no key" in ended.err) == (3, True), ended.err


async def test_no_internal_name_is_shown(world: World, told: str) -> None:
    wrong = await world.run("--tools", "grp", "hi")
    assert (wrong.code, wrong.err[:36]) == (2, "yarrow: --tools: 'grp' is not one of")
    for _ in range(2):
        saved(world, new_id(), name="shop")
    several = await world.run("-r", "shop", "hi")
    assert several.err.startswith("yarrow: 2 sessions are named 'shop': use an id: ")


async def test_nonsensical_arguments_are_reported(world: World, told: str) -> None:
    for arguments in (["sessions", "-c"], ["sessions", "tree", "--json"]):
        assert (await world.run(*arguments)).code == 2
    assert (await world.run("sessions", "delete", told, told)).code == 0


@pytest.mark.parametrize("arguments", [["-c", "/export ~nouser/x.html"], ["-c", "/import ~nouser/x"]])
async def test_an_unknown_home_is_one_sentence(world: World, told: str, arguments: list[str]) -> None:
    for given in (arguments, ["sessions", "import", "~nouser/x"], ["--export", "~nouser/x.html", "-c"]):
        ended = await world.run(*given)
        assert (ended.code, "~nouser" in ended.err, len(ended.err.splitlines())) == (2, True, 1)


async def test_an_unreadable_session_can_be_deleted(world: World, told: str) -> None:
    bad = world.session_files()[0].with_name("01a220ff-0000-7000-8000-000000000bad.jsonl")
    bad.write_text("garbage\n")
    assert (await world.run("sessions", "delete", bad.stem)).code == 0
    assert not bad.exists()


async def test_the_session_created_last_is_the_latest(world: World, told: str) -> None:
    made = (await world.run("-c", "--json", "/branch 1")).lines[1]["sessionId"]
    assert (await world.run("-c", "/stats")).out.startswith(f"session    {made}\n")


async def test_rows_on_a_terminal_are_aligned_and_cut_at_its_width(world: World) -> None:
    long = "why does the parser of this program reject every line that it reads?"
    world.script([{"text": "because"}])
    for _ in range(2):
        assert (await world.run(long)).code == 0
    assert (await world.run("short")).code == 0
    piped = (await world.run("sessions")).out.splitlines()
    assert [row.index("  ", 12) for row in piped] == [26, 29, 29]
    assert [row[31:35] for row in piped] == ["shor", "why ", "why "]
    for words in (("sessions",), ("sessions", "tree")):
        async with Screen(world, *words, size=(60, 24)) as screen:
            assert await screen.ended() == 0
            rows = [row for row in screen.rows if row]
            assert len(rows) == 3
            assert sum(row.endswith("…") for row in rows) == 2
