"""The real command line where the world is odd: directories that are gone, bytes that are no text, impatient keys."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from doubles.world import Ended, World
from yarrow.message import Message

ANSWER: list[dict[str, Any]] = [{"text": "There is one file."}]
ODD = os.fsdecode(b"caf\xe9")
"""Arguments and variables that are not UTF-8."""


def refused(ended: Ended, *named: str) -> None:
    """Check that one sentence names what is wrong."""
    assert (ended.code, ended.out) == (2, ""), ended.err
    assert len(ended.err.splitlines()) == 1
    for each in named:
        assert each in ended.err


# ---- directories ----


async def test_a_working_directory_that_is_not_utf8_works(world: World, tmp_path: Path) -> None:
    world.script(ANSWER)
    folder = tmp_path / ODD
    folder.mkdir()
    refused(await world.run("hi", cwd=folder), "current directory", r"caf\udce9", "UTF-8")
    assert (await world.run("--list-models", cwd=folder)).code == 0


def deleted(world: World, *arguments: str) -> list[str]:
    """A shell's arguments that run the command in a directory that is gone."""
    gone = world.project / "gone"
    gone.mkdir()
    command = f'cd "{gone}" && rmdir "{gone}" && exec "$@"'
    return ["-c", command, "sh", sys.executable, "-m", "yarrow", *arguments]


async def in_a_deleted_directory(world: World, *arguments: str) -> Ended:
    process = await asyncio.create_subprocess_exec(
        "sh", *deleted(world, *arguments), env=world.environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    return await world.finish(process)


async def test_a_deleted_working_directory_is_reported(world: World) -> None:
    world.script(ANSWER, [{"text": "second"}])
    refused(await in_a_deleted_directory(world, "hi"), "current directory", "No such file")
    refused(await in_a_deleted_directory(world, "-c", "hi"), "current directory")
    refused(await in_a_deleted_directory(world, "--attach", "a.sock", "-r", "abcd", "hi"), "--attach", "a.sock")
    refused(await in_a_deleted_directory(world, "serve", "--socket", "a.sock"), "--socket", "a.sock")
    assert (await in_a_deleted_directory(world, "--list-models")).code == 0
    session = (await world.run("--json", "one")).lines[0]["sessionId"]
    resumed = await in_a_deleted_directory(world, "-r", session, "two")
    assert (resumed.code, resumed.out) == (0, "second\n"), resumed.err
    relative = await in_a_deleted_directory(world, "--session-dir", "here", "-r", session, "three")
    assert len(relative.err.splitlines()) == 1


async def test_a_service_in_a_deleted_directory(world: World) -> None:
    world.script(ANSWER)
    process = await asyncio.create_subprocess_exec(
        "sh", *deleted(world, "serve"), env=world.environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    assert b"listening" in await process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert (await world.finish(process)).code == 0


@pytest.mark.parametrize(
    ("arguments", "variables", "named"),
    [
        (["--session-dir", "~nouser/x", "hi"], {}, "--session-dir"),
        (["hi"], {"YARROW_SESSION_DIR": "~nouser/x"}, "YARROW_SESSION_DIR"),
        (["serve", "--socket", "~nouser/x"], {}, "--socket"),
        (["--attach", "~nouser/x", "hi"], {}, "--attach"),
    ],
)
async def test_a_missing_home_is_reported(
    world: World, arguments: list[str], variables: dict[str, str], named: str
) -> None:
    world.script(ANSWER)
    refused(await world.run(*arguments, env=variables), named, "~nouser/x")


# ---- bytes that are no text ----


@pytest.mark.parametrize(
    "flag",
    [
        "--model", "--provider", "--system-prompt", "--append-system-prompt", "--resume", "--tools", "--session-dir",
        "--attach",
    ],
)  # fmt: skip
async def test_a_flag_that_is_not_utf8(world: World, flag: str) -> None:
    world.script(ANSWER)
    refused(await world.run(flag, ODD, "hi"), flag, r"caf\udce9")


async def test_a_socket_and_variables_that_are_not_utf8(world: World) -> None:
    world.script(ANSWER)
    refused(await world.run("serve", "--socket", f"/tmp/{ODD}"), "--socket")
    for name in ("YARROW_MODEL", "YARROW_PROVIDER", "YARROW_SESSION_DIR"):
        refused(await world.run("hi", env={name: ODD}), name)


async def test_invalid_utf8_in_a_prompt_is_replaced(world: World) -> None:
    world.script(ANSWER)
    assert (await world.run("-p", ODD)).code == 0
    (prompt, _) = [record for record in world.records() if isinstance(record, Message)]
    assert prompt.text == "caf\ufffd"


# ---- standard output ----


@pytest.mark.parametrize("arguments", ["--help", "--version", "models"])
async def test_a_full_or_closed_standard_output(world: World, arguments: str) -> None:
    folder = world.home / ".cache" / "yarrow" / "models"
    folder.mkdir(parents=True)
    (folder / "a.gguf").touch()

    def run(redirection: str) -> subprocess.CompletedProcess[str]:
        command = f'"{sys.executable}" -m yarrow {arguments} {redirection}'
        return subprocess.run(["sh", "-c", command], env=world.environment, capture_output=True, text=True)

    full = run(">/dev/full")
    assert (full.returncode, full.stderr) == (
        1, "yarrow: cannot write to standard output: No space left on device\n",
    )  # fmt: skip
    assert run(">/dev/full 2>&1").returncode == 1
    closed = run(">&-")
    assert (closed.returncode, closed.stderr) == (0, "")
    assert run(">/dev/full 2>&-").returncode == 1


# ---- a key pressed more than once ----


@pytest.mark.parametrize("pause", [0.0, 0.01, 0.05])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_several_interrupts_act_like_one(world: World, pause: float, number: signal.Signals) -> None:
    world.script([{"call": {"name": "bash", "arguments": {"command": "echo $$ > pid; sleep 300 & sleep 300"}}}])
    process = await world.start("-p", "x")
    marker = world.project / "pid"
    while not marker.exists() or not marker.read_text().strip():
        await asyncio.sleep(0.01)
    finishing = asyncio.create_task(world.finish(process))
    for _ in range(30):
        if process.returncode is not None:
            break
        # Not by the process's own method, which may collect the exit code before its owner does.
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
        await asyncio.sleep(pause)
    ended = await finishing
    assert ended.code == 130
    assert "aborted" in ended.err
    result = [record for record in world.records() if isinstance(record, Message)][-1]
    assert "Interrupted" in result.text


@pytest.mark.parametrize(
    ("module", "argument"),
    [
        ("yarrow.cli.main", "hi"),
        ("yarrow.cli.arguments", "hi"),
        ("yarrow.cli.service_commands", "hi"),
        ("grpc", "hi"),
        ("yarrow._version", "--version"),
    ],
)
async def test_an_interrupt_while_modules_are_imported(world: World, module: str, argument: str) -> None:
    world.script(ANSWER)
    # It comes from inside of the import, so that the moment is certain.
    code = (
        "import os, signal, sys\n"
        # A shell that runs the tests in the background ignores it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "import yarrow.cli.entry_point\n"
        "sys.meta_path.insert(0, Finder())\n"
        "sys.exit(yarrow.cli.entry_point.main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, argument, env=world.environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    ended = await world.finish(process)
    assert (ended.code, ended.out, ended.err) == (130, "", "")
