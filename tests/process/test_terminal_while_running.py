"""Commands and input while the agent runs, one test for each command: what works, is queued or is rejected."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from doubles.chat_server import DONE, ChatServer, Reply, chunk, finish, says
from doubles.screen import Screen
from doubles.world import World
from yarrow.client.conversation import CHAT_COMMANDS

WORK = {
    "/tree": "R rebase",
    "/tree all": "go",
    "/rebase": "Choose the messages to keep",
    "/rebase 0": "Rebased to ",
    "/resume": "R rebase",
    "/merge": "Merge which session into this one?",
    "/merge {other}": "Merged ",
    "/show": "No tool calls yet",
    "/new": "Started a new session",
    "/copy": "Copied the last answer",
    "/reload": r"(?s)> go.*> go",
    "/help": "While the agent runs, texts, templates and skills are queued",
    "/branch": "Branched to ",
    "/fork": "Forked to ",
    "/export out.jsonl": "Exported to ",
    "/import {file}": "Imported as ",
    "/resume {other}": "Resumed {other}",
    "/stats": "tokens ",
}
"""Output of each command when it works."""
REFUSED = (
    "/compact",
    "/name New",
    "/model m",
    "/model",
    "/thinking high",
    "/permissions plan",
    "/dry-run",
    "!echo 1",
    "!!echo 1",
)
WAIT = ("a text", "/review it", "/skill:tidy", "/tidy")
LEAVES = ("/quit", "/exit")


def name_of(line: str) -> str:
    return line.removeprefix("/").partition(" ")[0]


def test_every_command_is_tested_and_marked_correctly() -> None:
    marks = {name: one.is_idle_only for name, one in CHAT_COMMANDS.items()}
    refused = {name_of(line) for line in REFUSED if line.startswith("/")}
    worked = {name_of(line) for line in (*WORK, *LEAVES)}
    assert refused == {name for name, waits in marks.items() if waits}
    assert worked == {name for name, waits in marks.items() if not waits}


@asynccontextmanager
async def running(world: World) -> AsyncIterator[tuple[Screen, str]]:
    """A run that is blocked, and the short id of another existing session."""
    going = Reply([chunk({"role": "assistant", "content": "working"}), asyncio.Event(), finish("stop"), DONE])
    async with ChatServer([says("of the other"), going, says("both fit")]) as server:
        world.serve_by(server.root)
        (world.home / ".yarrow" / "prompts").mkdir()
        (world.home / ".yarrow" / "prompts" / "review.md").write_text("Review $1")
        skill = world.home / ".yarrow" / "skills" / "tidy"
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text("---\ndescription: Tidies.\n---\nTidy up.\n")
        assert (await world.run("-p", "other work")).code == 0
        other = world.session_files()[0].stem[-8:]
        async with Screen(world, size=(150, 70)) as screen:
            await screen.ready()
            screen.send("go\r")
            await screen.until("working")
            yield screen, other


@pytest.mark.parametrize("line", WORK)
async def test_commands_that_work_while_the_agent_runs(world: World, line: str) -> None:
    async with running(world) as (screen, other):
        filled = line.format(other=other, file=world.session_files()[0])
        screen.send(f"{filled}\r")
        shown = re.compile(WORK[line].format(other=other).replace("> go", "\u276f go"))
        await screen.until(lambda _: shown.search("\n".join(screen.whole)))
        assert "is running" not in screen.text


@pytest.mark.parametrize("line", REFUSED)
async def test_commands_rejected_while_the_agent_runs_stay_in_the_editor(world: World, line: str) -> None:
    async with running(world) as (screen, _other):
        screen.send(f"{line}\r")
        await screen.until(lambda _: re.search(r"error: .*is running", screen.text))
        await screen.until(lambda _: screen.editor == [line])
        assert "Thinking" in screen.text
        assert screen.text.count("working") == 1


@pytest.mark.parametrize("line", WAIT)
@pytest.mark.parametrize(
    ("key", "shown"), [("\r", "1 message to send after this step"), ("\x1b\r", "1 message to send after this run")]
)
async def test_texts_queued_while_the_agent_runs_are_counted(world: World, line: str, key: str, shown: str) -> None:
    async with running(world) as (screen, _other):
        screen.send(f"{line}{key}")
        await screen.until(shown)
        assert "error: " not in screen.text


@pytest.mark.parametrize("line", LEAVES)
async def test_quitting_while_the_agent_runs(world: World, line: str) -> None:
    async with running(world) as (screen, _other):
        screen.send(f"{line}\r")
        assert await screen.ended() == 0
        assert "Run interrupted" in screen.text


async def test_a_rejected_key_leaves_nothing_in_the_editor(world: World) -> None:
    async with running(world) as (screen, _other):
        for key in ("\x1b[Z", "\x10"):
            screen.send(key)
            await screen.until(lambda _: re.search(r"error: .*is running", screen.text))
            assert screen.editor in ([""], [])


async def test_a_text_during_a_users_command_stays_in_the_editor(world: World) -> None:
    world.script([{"text": "an answer"}], sandbox="off")
    async with Screen(world) as screen:
        await screen.ready()
        screen.send("!sleep 60\r")
        await screen.until("Running tools")
        screen.send("a text\r")
        await screen.until("error: Busy. Send again")
        await screen.until(lambda _: screen.editor == ["a text"])
        screen.send("\x1b")
        await screen.until("Interrupted. Changes made so far")
        await screen.until("ready")
        screen.send("\r")
        await screen.until("an answer")


@pytest.mark.parametrize(
    ("keys", "aborts"), [("\x1bx", False), ("\x1b\x1b", True), ("\x1b\x1b[A", True), ("\x1b\n", True)]
)
async def test_alt_with_a_letter_does_not_abort(world: World, keys: str, *, aborts: bool) -> None:
    async with running(world) as (screen, _other):
        screen.send(keys)
        if aborts:
            await screen.until("Run interrupted")
            return
        screen.send("typed")
        await screen.until(lambda _: screen.editor == ["typed"])
        assert "Run interrupted" not in screen.text
        assert "working" in screen.text
