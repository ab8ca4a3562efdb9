"""Permission at the real command line: without a client, at a terminal, and with early input."""

import asyncio
import html
import json
import os
import pty
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from doubles import outsider
from doubles.world import World
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceStub

COMMAND = {"command": "echo ran >> ran"}
TURNS = [{"call": {"name": "bash", "arguments": COMMAND}}], [{"text": "done"}]
PAUSE = 1.1
"""Seconds before a line that is to be an answer."""
ASK = {"permissions": {"rules": {"bash": "ask"}}}


def ran(world: World) -> bool:
    return (world.project / "ran").exists()


async def test_case_C_05_text_mode_denies_at_once_without_a_terminal(world: World) -> None:
    world.script(*TURNS, **ASK)
    ended = await world.run("go")
    assert ended.code == 5
    assert ended.out == "done\n"
    assert "yarrow: bash was denied because no one can be asked" in ended.err
    assert not ran(world)


async def test_a_decision_is_in_statistics_and_exports(world: World) -> None:
    world.script(*TURNS, **ASK)
    await world.run("go")
    told = await world.run("-c", "/stats")
    (line,) = [line for line in told.out.splitlines() if line.startswith("permission ")]
    assert "denied, no client could answer; bash: echo ran >> ran (" in line
    for name in ("out.html", "out.jsonl"):
        assert (await world.run("-c", f"/export {name}")).code == 0
    page = html.unescape((world.project / "out.html").read_text())
    assert "Denied by default (no client could answer): bash echo ran >> ran (" in page
    records = [json.loads(line) for line in (world.project / "out.jsonl").read_text().splitlines()]
    (answered,) = [one for one in records if one["kind"] == "permissionAnswered"]
    assert (answered["answer"], answered["by"]) == ("no", "nobody")


async def test_case_C_05_json_mode_denies_at_once(world: World) -> None:
    world.script(*TURNS, **ASK)
    ended = await world.run("--json", "go")
    assert ended.code == 5
    kinds = [
        next(iter(set(line) & {"permissionRequest", "permissionSettled", "toolOutput"}), "") for line in ended.lines
    ]
    assert [kind for kind in kinds if kind] == ["permissionRequest", "permissionSettled", "toolOutput"]
    output = next(line["toolOutput"] for line in ended.lines if "toolOutput" in line)
    assert output["isError"]
    assert "no user can be asked" in output["text"]
    assert not ran(world)


async def test_case_C_05_a_service_denies_at_once(world: World, tmp_path: Path) -> None:
    world.script(*TURNS, **ASK)
    socket = tmp_path / "s"
    process = await world.start("serve", "--socket", str(socket))
    try:
        assert process.stderr
        await asyncio.wait_for(process.stderr.readline(), 30)
        async with outsider.channel(socket) as channel:
            stub: Any = AgentServiceStub(channel)
            request = pb.PromptRequest(text="go", cwd=str(world.project))
            events = [response.event async for response in stub.Prompt(request, timeout=30)]
    finally:
        process.terminate()
        await process.wait()
    kinds = [event.WhichOneof("event") for event in events]
    assert kinds.index("permission_request") < kinds.index("permission_settled") < kinds.index("tool_output")
    assert events[-1].agent_end.reason == pb.END_REASON_COMPLETED
    assert not ran(world)


@pytest.mark.parametrize(
    ("mode", "code", "runs"), [("auto", 0, True), ("deny", 0, False), ("plan", 0, False), ("ask", 5, False)]
)
async def test_the_permissions_flag_is_applied(world: World, mode: str, code: int, runs: bool) -> None:
    world.script(*TURNS, permissions={"rules": {}}, sandbox="off")
    ended = await world.run("--permissions", mode, "go")
    assert (ended.code, ran(world)) == (code, runs)


class AtTerminal:
    """The command with a terminal for all streams, and a user who reads and types."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.ours, self._theirs = pty.openpty()
        self.seen = ""

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await self.start_python("-m", "yarrow", *arguments)

    async def start_python(self, *arguments: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, cwd=self._world.project, env=self._world.environment,
            stdin=self._theirs, stdout=self._theirs, stderr=self._theirs, start_new_session=True,
        )  # fmt: skip
        os.close(self._theirs)
        os.set_blocking(self.ours, False)
        return process

    async def until(self, text: str) -> None:
        async with asyncio.timeout(30):
            while text not in self.seen:
                await self._read()

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self.ours, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self.ours)
        self.seen += os.read(self.ours, 65536).decode(errors="replace")

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    async def answer(self, line: str) -> None:
        """Answer a question after the pause that makes an answer of a line."""
        await self.until("Answer: ")
        await asyncio.sleep(PAUSE)
        self.type(f"{line}\n")


@asynccontextmanager
async def at_terminal(world: World, *arguments: str, early: str = "") -> AsyncGenerator[AtTerminal]:
    """Run the command at a terminal, where it ends with 0; `early` is typed before it starts."""
    terminal = AtTerminal(world)
    terminal.type(early)
    process = await terminal.start(*arguments)
    try:
        yield terminal
        await terminal.until("done")
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()
        os.close(terminal.ours)


async def typed(world: World, text: str, *, early: str = "") -> AtTerminal:
    """Run a prompt at a terminal, and answer when there is a question; `early` is typed before there is one."""
    world.script(*TURNS, **ASK)
    async with at_terminal(world, "--plain", "go", early=early) as terminal:
        await terminal.answer(text)
    return terminal


async def test_a_user_at_a_terminal_is_asked(world: World) -> None:
    terminal = await typed(world, "yes")
    assert "echo ran >> ran" in terminal.seen
    assert ran(world)


@pytest.mark.parametrize(("early", "late", "runs"), [("yes\n", "no", False), ("\n\n", "yes", True)])
async def test_input_typed_too_early_is_not_an_answer(world: World, early: str, late: str, runs: bool) -> None:
    await typed(world, late, early=early)
    assert ran(world) == runs


@pytest.mark.parametrize(("begun", "rest"), [("al", "ways"), ("y", "es"), ("sess", "ion"), ("yes", "")])
async def test_a_word_begun_before_the_question_is_not_an_answer(world: World, begun: str, rest: str) -> None:
    world.script(*TURNS, **ASK)
    async with at_terminal(world, "--plain", "go", early=begun) as terminal:
        await terminal.answer(rest)
        await terminal.until(f"not an answer, sent to the agent as a message: {begun}{rest}")
        assert not ran(world)
        await terminal.answer("no")
    assert not ran(world)


async def test_input_typed_too_early_is_sent_to_the_agent(world: World) -> None:
    world.script(TURNS[0], [{"expect": {"contains": "use ls, not cat"}}, {"text": "done"}], **ASK)
    async with at_terminal(world, "--plain", "go") as terminal:
        await terminal.until("Answer: ")
        terminal.type("use ls, not ca\x7fat\n")
        await terminal.until("sent to the agent as a message: use ls, not cat")
        await terminal.answer("no")
    assert not ran(world)


@pytest.mark.parametrize("line", ["", "y", "S", "a", "n"])
async def test_a_single_letter_is_not_an_answer(world: World, line: str) -> None:
    world.script(*TURNS, **ASK)
    async with at_terminal(world, "--plain", "go") as terminal:
        await terminal.answer(line)
        await terminal.until("type the whole word")
        assert not ran(world)
        await terminal.answer("yes")
    assert ran(world)


async def test_always_is_stored_and_applies_in_the_next_process(world: World) -> None:
    world.script(*TURNS, permissions={})
    config = world.home / ".yarrow/config.json"
    config.write_text("// my settings\n" + config.read_text())
    async with at_terminal(world, "--plain", "--sandbox", "off", "go") as terminal:
        await terminal.answer("always")
        await terminal.until("Type always again")
        await terminal.answer("always")
    assert config.read_text().startswith("// my settings\n{")
    assert (await world.run("--sandbox", "off", "go")).code == 0
    assert (world.project / "ran").read_text() == "ran\nran\n"


async def test_a_job_in_the_background_is_not_stopped_by_a_question(world: World) -> None:
    """Its terminal belongs to the shell that started it, so it cannot ask."""
    world.script(*TURNS, **ASK)
    shell = AtTerminal(world)
    code = (
        "import fcntl, os, subprocess, sys, termios\n"
        "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        "job = subprocess.Popen([sys.executable, '-m', 'yarrow', '--plain', 'go'], process_group=0)\n"
        "print('ended with', job.wait())\n"
    )
    process = await shell.start_python("-c", code)
    try:
        await shell.until("ended with 5")
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()
        os.close(shell.ours)
    assert "no user can be asked" in shell.seen
    assert not ran(world)
