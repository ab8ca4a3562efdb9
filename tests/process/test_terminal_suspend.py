"""Ctrl+Z restores the terminal for the shell, and fg resumes the terminal UI, redrawn once."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from doubles.chat_server import DONE, ChatServer, Reply, chunk, finish
from doubles.places import PLACES, TO_ANSWER, Place, answer, asking, at_a_question
from doubles.screen import SIGN, Screen
from doubles.world import World

SHELL = ("bash", "--norc", "--noprofile", "--noediting", "-i")
PROMPT = "shell$ "
COMMAND = f"{sys.executable} -m yarrow"


@asynccontextmanager
async def in_a_shell(world: World, arguments: str = "") -> AsyncGenerator[Screen]:
    """The terminal UI as the job of a shell."""
    async with Screen(world, command=SHELL, env={"PS1": PROMPT}) as screen:
        await screen.until(PROMPT.strip())
        screen.send(f"clear; {COMMAND} {arguments}\r")
        await screen.ready()
        yield screen


async def suspended(screen: Screen) -> None:
    """Press Ctrl+Z, and see that the terminal is the shell's."""
    screen.send("\x1a")
    await screen.until(lambda _: "Stopped" in screen.text and screen.text.rstrip().endswith(PROMPT.strip()))
    assert screen.left_behind() == []
    assert sum(SIGN in row for row in screen.rows) <= 1


async def test_suspending_restores_the_terminal_and_resuming_redraws_once(world: World) -> None:
    world.script([{"text": "an answer\n\n- one\n- two"}], [{"text": "the second"}])
    async with in_a_shell(world) as screen:
        screen.send("hi\r")
        await screen.until("two")
        await screen.until("ready")
        screen.send("half a thought")
        await screen.until(f"{SIGN}half a thought")
        await suspended(screen)
        screen.send("echo in''between\r")
        await screen.until("inbetween")
        screen.send("fg\r")
        await screen.until(f"{SIGN}half a thought")
        screen.send(" ends\r")
        await screen.until("the second")
        await screen.until("ready")
        assert "\n".join(screen.whole).count("an answer") == 1
        assert "\n".join(screen.whole).count("ready") == 1
        screen.send("\x04")
        await screen.until("Resume with: yarrow -r")
        await screen.until(lambda _: screen.text.rstrip().endswith(PROMPT.strip()))
        assert screen.left_behind() == []


@pytest.mark.parametrize(
    ("place", "shows"), [*zip(PLACES, ("half a thought", "Enter select", TO_ANSWER, TO_ANSWER), strict=True)]
)
async def test_suspending_works_in_every_view(world: World, place: Place, shows: str) -> None:
    async with in_a_shell(asking(world)) as screen:
        await place(screen)
        was_alternate = screen.emulator.is_alternate
        for _ in range(2):
            await suspended(screen)
            screen.send("fg\r")
            await screen.until(lambda _: screen.emulator.is_alternate is was_alternate and shows in screen.text)


async def test_keys_typed_for_the_shell_do_not_answer_a_question(world: World) -> None:
    async with in_a_shell(asking(world)) as screen:
        await at_a_question(screen)
        await suspended(screen)
        screen.send("fg\r\t1\r")
        await screen.until(TO_ANSWER)
        await answer(screen, 4)
        await screen.until("Denied by you")


async def test_a_run_is_suspended_and_resumed(world: World) -> None:
    gate = asyncio.Event()
    going = Reply(
        [
            chunk({"role": "assistant", "content": "a beginning"}),
            gate,
            chunk({"content": " and an end"}),
            finish("stop"),
            DONE,
        ]
    )
    async with ChatServer([going]) as server:
        world.serve_by(server.root)
        async with in_a_shell(world) as screen:
            screen.send("go\r")
            await screen.until("a beginning")
            await suspended(screen)
            assert "The run is suspended; fg resumes it" in screen.text
            gate.set()
            screen.send("fg\r")
            await screen.until("a beginning and an end")
            await screen.until("ready")
            assert "\n".join(screen.whole).count("a beginning") == 1


async def test_the_window_size_may_change_while_suspended(world: World) -> None:
    world.script([{"text": "an answer"}])
    async with in_a_shell(world) as screen:
        screen.send("hi\r")
        await screen.until("an answer")
        await screen.until("ready")
        await suspended(screen)
        screen.resize(50, 12)
        screen.send("fg\r")
        await screen.until(lambda _: any("ready" in row and len(row) <= 49 for row in screen.rows))
        screen.send("typed")
        await screen.until(lambda _: screen.editor == ["typed"] and screen.place == (7, 0))


async def test_without_a_shell_suspending_is_refused(world: World) -> None:
    world.script([{"text": "got it"}])
    async with Screen(world) as screen:
        await screen.ready()
        screen.send("on\x1ae")
        await screen.until("Can't suspend: no parent shell")
        assert screen.editor == ["one"]


async def test_in_an_orphaned_process_group_suspending_is_refused(world: World) -> None:
    world.script([{"text": "got it"}])
    command = ("sh", "-c", f"{COMMAND}; exit $?")
    async with Screen(world, command=command) as screen:
        await screen.ready()
        screen.send("one\x1a")
        await screen.until("Can't suspend: no parent shell")
        assert screen.editor == ["one"]
        screen.send("\x03\x04")
        assert await screen.ended() == 0
        assert screen.left_behind() == []
