"""Yarrow, without anything that is of Unix alone: what is imported, and what the commands do."""

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from doubles.places import PAUSE
from doubles.screen import Screen
from doubles.world import Ended, World
from yarrow.tool.command_output import PROCESSES_ENDED

TESTS = str(Path(__file__).parents[1])
NOT_THERE = (
    "yarrow.client.tui",
    "yarrow.cli.tui_launcher",
    "yarrow.cli.type_ahead",
    "yarrow.cli.first_start",
    "yarrow.cli.first_start",
)
"""The terminal UI, and what opens it."""
OF_OTHERS = {
    f"yarrow.platform.{name}" for name in ("linux", "macos", "linux_syscalls", "posix", "symlink_mount_program")
}
IMPORT_ALL = """
from doubles.as_windows import pretend
names = pretend()
import importlib
for name in names:
    try:
        importlib.import_module(name)
    except ImportError:
        print(name)
from yarrow.platform import system
print(type(system).__module__)
"""


async def as_windows(world: World, *arguments: str, stdin: bytes = b"", **environment: str) -> Ended:
    """Exit of the command line without any Unix-only name."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "doubles.as_windows", *arguments),
        cwd=world.project,
        env={**world.environment, "PYTHONPATH": TESTS, **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(stdin), 60)
    assert process.returncode is not None
    assert b"Traceback" not in err, err.decode()
    return Ended(process.returncode, out.decode(), err.decode())


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"call": {"name": name, "arguments": arguments}}


def outputs(ended: Ended) -> list[str]:
    return [line["toolOutput"]["text"] for line in ended.lines if "toolOutput" in line]


def test_every_module_is_imported_but_the_terminal_ui(in_python: Callable[..., str]) -> None:
    *failed, chosen = in_python(IMPORT_ALL).splitlines()
    assert chosen == "yarrow.platform.windows"
    assert {name for name in failed if not name.startswith(NOT_THERE)} == OF_OTHERS
    assert "yarrow.cli.tui_launcher" in failed


async def test_version_and_help(world: World) -> None:
    assert (await as_windows(world, "--version")).out.startswith("yarrow ")
    assert "--resume" in (await as_windows(world, "--help")).out


async def test_commands_that_need_no_provider(world: World) -> None:
    world.script([{"text": "ok"}])
    assert json.loads((await as_windows(world, "config", "json")).out)
    assert (await as_windows(world, "models", "local")).code in (0, 2)
    ended = await as_windows(world, "doctor")
    assert "Git for Windows" in ended.out + ended.err
    assert "use WSL for one" in ended.out + ended.err
    assert "apt install" not in ended.out + ended.err
    assert (await as_windows(world, "sessions")).code == 0
    assert (await as_windows(world, "init")).code == 0
    assert (await as_windows(world, "trust", "list")).code == 0
    assert (await as_windows(world, "config", "set", "model", "x/y")).code in (0, 2)


async def test_a_prompt_is_answered_saved_resumed_and_exported(world: World) -> None:
    world.script([{"text": "one"}], [{"text": "two"}], [{"text": "three"}])  # each process starts it again
    ended = await as_windows(world, "-p", "hi")
    assert (ended.code, ended.out) == (0, "one\n")
    assert (await as_windows(world, stdin=b"piped in")).out == "one\n"
    assert (await as_windows(world, "--json", "-c", "-p", "again")).code == 0
    page = world.project / "page.html"
    assert (await as_windows(world, "-c", "--export", str(page))).code == 0
    assert "again" in page.read_text()
    listed = json.loads((await as_windows(world, "sessions", "--json")).out.splitlines()[0])
    assert (await as_windows(world, "-r", listed["sessionId"], "-p", "more")).code == 0


async def test_the_first_start_reports_the_missing_sandbox(world: World) -> None:
    world.script([{"text": "one"}])
    sentence = "Yarrow has no sandbox on Windows; use WSL for one: shell commands run with your permissions"
    told = [(await as_windows(world, "-p", "hi")).err for _ in range(3)]
    assert [one.count(sentence) for one in told] == [1, 0, 0]
    assert "sandbox" not in told[1]


async def test_file_tools_work_by_handles_of_directories(world: World) -> None:
    (world.project / "a.txt").write_text("line one\n")
    (world.project / "out").symlink_to(world.home)
    (world.home / "kept").write_text("secret")
    world.script(
        [
            call("ls"),
            call("read", path="A.TXT"),
            call("read", path="a.txt"),
            call("write", path="sub/new/b.txt", content="hello\n"),
            call("edit", path="a.txt", edits=[{"old": "one", "new": "two"}]),
            call("find", pattern="*.txt"),
            call("grep", pattern="line"),
            call("read", path="sub"),
            call("ls", path="a.txt"),
            call("read", path="nul.txt"),
            call("write", path=".env:x", content="K=v"),
            call("read", path="out/kept"),
        ],
        [{"text": "done"}],
    )
    ended = await as_windows(world, "--json", "-p", "hi")
    told = outputs(ended)
    assert told[0] == "a.txt\nout/"
    assert told[2] == "line one\n"
    assert (world.project / "sub/new/b.txt").read_text() == "hello\n"
    assert (world.project / "a.txt").read_text() == "line two\n"
    assert told[5] == "a.txt\nsub/new/b.txt"
    assert told[6] == "a.txt:1:line two"
    assert told[7] == "new/"
    assert "not a directory" in told[8]
    assert "device on Windows" in told[9]
    assert "stream within a file" in told[10]
    assert "outside the workspace" in told[11]
    assert not list(world.project.glob("**/.yarrow-*"))


async def test_a_command_runs_in_bash_and_leaves_no_process(world: World) -> None:
    world.script(
        [call("bash", command="echo hi; sleep 300 & echo $! > pid"), call("bash", command="sleep 300", timeout=0.3)],
        [{"text": "done"}],
    )
    first, second = outputs(await as_windows(world, "--json", "-p", "hi", PRETENDED_BASH="/bin/bash"))
    assert first.split("\n") == ["hi", f"[{PROCESSES_ENDED}]"]
    assert "timed out" in second
    assert not Path("/proc", (world.project / "pid").read_text().strip()).exists()


async def test_without_bash_the_error_says_what_to_do(world: World) -> None:
    world.script([call("bash", command="echo hi")], [{"text": "done"}])
    (told,) = outputs(await as_windows(world, "--json", "-p", "hi"))
    assert "install Git for Windows" in told


async def test_a_line_conversation_replaces_the_terminal_ui(world: World) -> None:
    asked = {"permissions": {"rules": {"bash": "ask"}}}
    world.script([{"text": "hello"}, call("bash", command="echo ran > ran")], [{"text": "ok"}], **asked)
    pretended = {"PYTHONPATH": TESTS, "PRETENDED_BASH": "/bin/bash"}
    async with Screen(world, env=pretended, command=(sys.executable, "-m", "doubles.as_windows")) as screen:
        await screen.until(lambda screen: any(row.startswith(">") for row in screen.rows))
        screen.send("hi\r")
        await screen.until("Answer:")
        await asyncio.sleep(PAUSE)
        screen.send("yes\r")
        await screen.until("ok")
        screen.send("/quit\r")
        assert await screen.ended() == 0
    assert (world.project / "ran").read_text() == "ran\n"


async def test_an_interrupt_ends_a_run(world: World) -> None:
    world.script([call("bash", command="touch on; sleep 300")], [{"text": "done"}])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "doubles.as_windows", "-p", "hi"),
        cwd=world.project,
        env={**world.environment, "PYTHONPATH": TESTS, "PRETENDED_BASH": "/bin/bash"},
        stdin=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(30):
        while not (world.project / "on").exists():
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130


async def test_serve_is_refused_with_a_message(world: World) -> None:
    ended = await as_windows(world, "serve")
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert "run it in WSL" in ended.err


@pytest.mark.parametrize("rule", ["read(SUB/**)", "read(sub\\*)"])
async def test_rules_hold_in_any_spelling(world: World, rule: str) -> None:
    (world.project / "Sub").mkdir()
    (world.project / "Sub" / "f").write_text("x")
    world.script([call("read", path="Sub/f")], [{"text": "ok"}], permissions={"rules": {rule: "deny"}})
    (told,) = outputs(await as_windows(world, "--json", "-p", "hi"))
    assert "denied by the rule" in told
