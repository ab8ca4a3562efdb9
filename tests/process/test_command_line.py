"""The real command line: what comes out where, exit codes, resuming, bad input, and quiet ends."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from doubles.chat_server import DONE, ChatServer, Reply, chunk, finish, page, says
from doubles.world import World
from yarrow.message import Message, Role

LOOK: list[dict[str, Any]] = [{"text": "Let me look."}, {"call": {"name": "ls", "arguments": {}}}]
ANSWER: list[dict[str, Any]] = [{"text": "There is one file."}]


async def test_a_prompt_with_a_tool_call(world: World) -> None:
    (world.project / "only.txt").write_text("x")
    world.script(LOOK, ANSWER)
    ended = await world.run("what is here?")
    assert (ended.code, ended.out) == (0, "Let me look.\nThere is one file.\n")
    assert "ls" in ended.err
    roles = [record.role for record in world.records() if isinstance(record, Message)]
    assert roles == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    (path,) = world.session_files()
    assert path.stat().st_mode & 0o777 == 0o600
    assert all(folder.stat().st_mode & 0o777 == 0o700 for folder in (path.parent, path.parent.parent))


async def test_case_C_03_json_mode_is_json_lines(world: World) -> None:
    text = "two\nlines\u2028and more"
    world.script(
        [{"text": text}, {"call": {"name": "bash", "arguments": {"command": "echo out; echo err >&2"}}}],
        [{"text": "ok"}],
    )
    ended = await world.run("--json", "go", env={"PYTHONWARNINGS": "always"})
    header, *events = ended.lines
    assert ended.code == 0
    assert header["type"] == "header"
    assert header["schemaVersion"] == 1
    assert header["cwd"] == str(world.project)
    assert [event["sequence"] for event in events] == [str(number) for number in range(1, len(events) + 1)]
    kinds = [next(key for key in event if key not in ("sessionId", "runId", "sequence", "time")) for event in events]
    assert kinds[0] == "agentStart"
    assert kinds[-1] == "agentEnd"
    assert "".join(event["textDelta"]["text"] for event in events if "textDelta" in event) == text + "ok"
    (output,) = [event["toolOutput"] for event in events if "toolOutput" in event]
    assert {"out", "err"} <= set(output["text"].split())


@pytest.mark.parametrize("mode", [[], ["--json"]])
async def test_case_C_02_an_error_of_the_provider(world: World, mode: list[str]) -> None:
    refusal = page({"error": {"message": "messages: too odd", "type": "invalid_request_error"}}, 400)
    async with ChatServer([refusal]) as server:
        world.serve_by(server.root)
        ended = await world.run(*mode, "-p", "x")
    assert ended.code == 3
    if mode:
        assert ended.lines[-1]["agentEnd"]["error"]["code"] == "INVALID_REQUEST"
    else:
        assert "too odd" in ended.err


async def test_case_C_01_a_pipe_that_stays_open(world: World) -> None:
    world.script(ANSWER)
    reading, writing = os.pipe()
    try:
        process = await world.start("-p", "hi", stdin=reading)
        ended = await world.finish(process)
    finally:
        os.close(reading)
        os.close(writing)
    assert (ended.code, ended.out) == (0, "There is one file.\n")


async def test_case_C_01_piped_text_is_added_to_the_prompt(world: World) -> None:
    world.script(ANSWER)
    assert (await world.run("-p", "hi", stdin=b"ctx")).code == 0
    (prompt, _) = [record for record in world.records() if isinstance(record, Message)]
    assert "hi" in prompt.text
    assert "ctx" in prompt.text


@pytest.mark.parametrize("arguments", [["--json", "-p", "x"], ["-p", "x"]])
async def test_case_C_04_the_output_pipe_is_closed(world: World, arguments: list[str]) -> None:
    marker = world.project / "pid"
    world.script(
        [{"text": "line\n"}, {"call": {"name": "bash", "arguments": {"command": "echo $$ > pid; exec sleep 300"}}}],
        sandbox="off",  # a number of another space of processes would mean nothing here
    )
    process = await world.start(*arguments)
    assert process.stdout is not None
    await process.stdout.readline()
    while not marker.exists() or not marker.read_text().strip():
        await asyncio.sleep(0.01)
    process.stdout._transport.close()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    assert process.stderr is not None
    err = await asyncio.wait_for(process.stderr.read(), 30)
    assert await process.wait() == 0
    assert b"Traceback" not in err
    assert b"BrokenPipe" not in err
    assert not alive(int(marker.read_text()))
    assert world.records()


async def test_case_C_04_a_list_without_a_reader(world: World) -> None:
    world.script(ANSWER)
    process = await world.start("--list-models")
    assert process.stdout is not None
    process.stdout._transport.close()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    assert process.stderr is not None
    assert b"Traceback" not in await process.stderr.read()
    assert await process.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
async def test_case_A_04_an_interrupt_leaves_no_process(world: World, number: signal.Signals) -> None:
    world.script([{"call": {"name": "bash", "arguments": {"command": "echo $$ > pid; sleep 300 & sleep 300"}}}])
    process = await world.start("-p", "x")
    marker = world.project / "pid"
    while not marker.exists() or not marker.read_text().strip():
        await asyncio.sleep(0.01)
    group = int(marker.read_text())
    process.send_signal(number)
    ended = await world.finish(process)
    assert ended.code == 130
    assert not group_runs(group)
    result = [record for record in world.records() if isinstance(record, Message)][-1]
    assert result.role is Role.TOOL
    assert "Interrupted" in result.text


async def test_an_interrupt_is_reported_to_its_end_in_json(world: World) -> None:
    world.script([{"text": "x"}, {"delay": 600}])
    process = await world.start("--json", "-p", "x")
    assert process.stdout is not None
    while b"textDelta" not in await process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    ended = await world.finish(process)
    assert ended.code == 130
    assert ended.lines[-1]["agentEnd"]["reason"] == "END_REASON_ABORTED"


async def test_resuming(world: World, tmp_path: Path) -> None:
    world.script(ANSWER, [{"text": "second"}], [{"text": "third"}])
    header = (await world.run("--json", "one")).lines[0]
    session = header["sessionId"]
    assert (await world.run("-c", "two")).out == "second\n"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    resumed = (await world.run("--json", "-r", session[-8:], "three", cwd=elsewhere)).lines
    assert (resumed[0]["sessionId"], resumed[0]["cwd"]) == (session, str(world.project))
    assert [record.text for record in world.records() if isinstance(record, Message)] == [
        "one", "There is one file.", "two", "second", "three", "third",
    ]  # fmt: skip
    assert (await world.run("-c", "x", cwd=elsewhere)).code == 2


async def test_case_S_01_a_torn_last_line_loses_only_that_line(world: World) -> None:
    world.script(ANSWER, [{"text": "still here"}])
    await world.run("one")
    (path,) = world.session_files()
    before = path.read_bytes()
    path.write_bytes(before + b'{"kind":"message","role":"assi')
    ended = await world.run("-c", "two")
    assert (ended.code, ended.out) == (0, "still here\n")
    assert "Line 4" in ended.err
    after = path.read_bytes()
    assert after.startswith(before + b'{"kind":"message","role":"assi\n')
    assert [record.text for record in world.records() if isinstance(record, Message)][-2:] == ["two", "still here"]


async def test_a_dry_run_changes_nothing(world: World) -> None:
    world.script([{"call": {"name": "write", "arguments": {"path": "new.txt", "content": "x"}}}], ANSWER)
    ended = await world.run("--dry-run", "make it")
    assert ended.code == 0
    assert not list(world.project.iterdir())
    result = [record for record in world.records() if isinstance(record, Message)][2]
    assert "nothing was changed" in result.text
    assert "+x" in result.diff
    assert "\n    +x\n" in ended.err


async def test_no_session_leaves_no_file(world: World) -> None:
    world.script(ANSWER)
    assert (await world.run("--no-session", "x")).code == 0
    assert not world.session_files()


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["--modell", "x", "hi"], 2, "--model"),
        (["-r", "nosuchsession", "hi"], 2, "nosuchsession"),
        (["--provider", "nobody", "hi"], 2, "nobody"),
        (["--tools", "hammer", "hi"], 2, "hammer"),
        (["@missing.txt"], 2, "missing.txt"),
        ([], 2, "prompt"),
        (["--attach", "/does/not/exist.sock", "hi"], 3, "/does/not/exist.sock"),
        (["sessions", "show"], 2, "sessions show ID"),
    ],
)
async def test_invalid_input_is_one_clear_sentence(world: World, arguments: list[str], code: int, named: str) -> None:
    world.script(ANSWER)
    ended = await world.run(*arguments)
    assert ended.code == code, ended.err
    assert ended.out == ""
    assert named in ended.err
    assert len(ended.err.splitlines()) == 1


async def test_an_invalid_configuration_file(world: World) -> None:
    world.script(ANSWER)
    path = world.home / ".yarrow" / "config.json"
    path.write_text('{"provider": "scripted",\n  "model": }')
    ended = await world.run("hi")
    assert ended.code == 2
    assert str(path.name) in ended.err
    assert "2" in ended.err


async def test_an_unreachable_provider(world: World) -> None:
    world.serve_by("http://127.0.0.1:9")
    ended = await world.run("hi")
    assert ended.code == 3
    assert "127.0.0.1:9" in ended.err
    assert [record.text for record in world.records() if isinstance(record, Message)] == ["hi"]


async def test_a_model_file_that_is_not_gguf(world: World) -> None:
    model = world.home / "model.gguf"
    model.write_bytes(b"not a model")
    world.configure({"provider": "local", "providers": {"local": {"models": [str(model)]}}})
    ended = await world.run("hi")
    assert ended.code == 3
    assert "model.gguf" in ended.err
    assert "GGUF" in ended.err


@pytest.mark.parametrize(("stdin", "named"), [(b"x" * 10_000_000, "10,000,000"), (b"caf\xe9", "UTF-8")])
async def test_input_that_is_not_a_valid_prompt(world: World, stdin: bytes, named: str) -> None:
    world.script(ANSWER)
    path = world.home / "stdin"
    path.write_bytes(stdin)
    with path.open("rb") as file:
        ended = await world.finish(await world.start(stdin=file.fileno()))
    assert ended.code == 2
    assert named in ended.err
    assert not world.session_files()


async def test_a_full_disk(world: World) -> None:
    if not Path("/dev/full").exists():
        pytest.fail("the test needs /dev/full")
    world.script(ANSWER, sessionDir="/dev/full/sessions")
    ended = await world.run("hi")
    assert ended.code == 1
    assert "/dev/full" in ended.err
    assert len(ended.err.splitlines()) == 1


async def test_a_session_that_another_process_writes(world: World) -> None:
    world.script([{"delay": 600}])
    first = await world.start("--json", "x")
    assert first.stdout is not None
    header = json.loads(await first.stdout.readline())
    while b"messageStart" not in await first.stdout.readline():
        pass
    ended = await world.run("-r", header["sessionId"], "y")
    first.send_signal(signal.SIGINT)
    await first.communicate()
    assert ended.code == 1
    assert str(first.pid) in ended.err


async def test_escape_sequences_of_tools_are_removed(world: World) -> None:
    command = r"printf '\033]52;c;cm0gLXJmIH4=\a\033[2J\033[6n'"
    world.script([{"call": {"name": "bash", "arguments": {"command": command}}}], [{"text": "\x1b[31mred"}])
    ended = await world.run("x")
    assert "\x1b" not in ended.err
    assert "\a" not in ended.err


async def test_version_and_help(world: World) -> None:
    version = Path(__file__).parents[2].joinpath("VERSION").read_text().strip()
    assert (await world.run("--version")).out == f"yarrow {version}\n"
    ended = await world.run("--help")
    assert ended.code == 0
    assert "sandbox" in ended.out
    assert (await world.run("trust", "--help")).out.startswith("Trust this project's settings, or revoke that trust\n")
    assert (await world.run("help")).out == ended.out
    assert (await world.run("help", "trust")).out == (await world.run("trust", "--help")).out


async def test_case_T_15_and_T_13_in_a_process(world: World) -> None:
    command = 'read x; echo "got:$x"; false'
    world.script([{"call": {"name": "bash", "arguments": {"command": command}}}], ANSWER)
    assert (await world.run("x")).code == 0
    result = [record for record in world.records() if isinstance(record, Message)][2]
    assert "got:\n" in result.text
    assert "exit code 1" in result.text


async def test_case_P_05_split_characters_are_joined(world: World) -> None:
    whole = b"".join([chunk({"content": "你好🌍"}), finish("stop"), DONE])
    async with ChatServer([Reply([bytes([byte]) for byte in whole])]) as server:
        world.serve_by(server.root)
        ended = await world.run("x")
    assert ended.out == "你好🌍\n"
    assert "\ufffd" not in world.session_files()[0].read_text()


async def test_the_model_is_listed(world: World) -> None:
    async with ChatServer() as server:
        server.pages["/v1/models"] = page({"object": "list", "data": [{"id": "m1"}, {"id": "m2", "context_length": 5}]})
        world.serve_by(server.root)
        assert (await world.run("--list-models")).out == "m1\nm2\n"
        listed = (await world.run("--list-models", "--json")).lines
    assert [(one["name"], one["contextWindow"]) for one in listed] == [("m1", 0), ("m2", 5)]


async def test_a_model_may_be_named_with_its_provider(world: World) -> None:
    async with ChatServer([says("hi")]) as server:
        world.serve_by(server.root)
        assert (await world.run("-m", "mock/other:high", "x")).out == "hi\n"
        assert server.prompts[0]["model"] == "other"
        assert server.prompts[0]["reasoning_effort"] == "high"


def states() -> dict[int, tuple[str, int]]:
    """State and process group of every process."""
    found: dict[int, tuple[str, int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(path.parent.name)] = (fields[0], int(fields[2]))
    return found


def alive(pid: int) -> bool:
    """True if it runs; a zombie does not."""
    return states().get(pid, ("Z", 0))[0] not in "ZX"


def group_runs(group: int) -> bool:
    return any(state not in "ZX" and of == group for state, of in states().values())
