"""Input typed before the terminal UI is ready is neither lost nor misinterpreted."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from doubles.chat_server import ChatServer, says
from doubles.places import TO_ANSWER, answer
from doubles.screen import SECONDS, SIGN, Screen
from doubles.serving import served
from doubles.world import World


async def at_once(_screen: Screen) -> None:
    """Before the command even began."""


async def when_it_takes_keys(screen: Screen) -> None:
    """After it took the terminal, and before anything is drawn."""
    async with asyncio.timeout(SECONDS):
        while not screen.takes_keys:
            await asyncio.sleep(0.001)
    assert not screen.emulator.marks_pastes


WHEN = [at_once, when_it_takes_keys]
When = Callable[[Screen], Awaitable[None]]


@pytest.mark.parametrize("when", WHEN)
async def test_text_typed_early_is_in_the_editor(world: World, when: When) -> None:
    world.script([{"text": "an answer"}])
    async with Screen(world) as screen:
        await when(screen)
        screen.send("half a thu\x7fo\u00fcght")
        await screen.ready()
        await screen.until(f"{SIGN}half a tho\u00fcght")
        screen.send("\r")
        await screen.until("an answer")


@pytest.mark.parametrize("when", WHEN)
async def test_enter_typed_early_sends(world: World, when: When) -> None:
    async with ChatServer([says("an answer")]) as server:
        world.serve_by(server.root)
        async with Screen(world) as screen:
            await when(screen)
            screen.send("hi there\r")
            await screen.until("an answer")
            assert screen.editor == []
            assert server.prompts[0]["messages"][-1]["content"] == "hi there"


@pytest.mark.parametrize("when", WHEN)
async def test_an_early_command_runs_and_later_text_is_in_the_editor(world: World, when: When) -> None:
    world.script([{"text": "an answer"}])
    async with Screen(world) as screen:
        await when(screen)
        screen.send("/stats\r")
        await screen.ready()
        screen.send("typed")
        await screen.until("tokens ")
        await screen.until(f"{SIGN}typed")


@pytest.mark.parametrize("when", WHEN)
async def test_lines_arriving_at_once_are_a_paste_and_not_sent(world: World, when: When) -> None:
    async with ChatServer([says("an answer")]) as server:
        world.serve_by(server.root)
        async with Screen(world) as screen:
            await when(screen)
            screen.send("one\rtwo\r")
            await screen.ready()
            await screen.until(lambda _: screen.editor == ["one", "two"])
            assert server.prompts == []


@pytest.mark.parametrize("when", WHEN)
async def test_ctrl_d_typed_early_quits(world: World, when: When) -> None:
    world.script([{"text": "an answer"}])
    async with Screen(world) as screen:
        await when(screen)
        screen.send("\x04")
        assert (await screen.ended(), screen.left_behind()) == (0, [])


@pytest.mark.parametrize("when", WHEN)
async def test_ctrl_c_typed_early_quits(world: World, when: When) -> None:
    world.script([{"text": "an answer"}])
    async with Screen(world) as screen:
        await when_it_takes_keys(screen)
        await when(screen)
        screen.send("\x03")
        assert (await screen.ended(), screen.left_behind()) == (130, [])


@pytest.mark.parametrize("when", WHEN)
async def test_early_input_does_not_answer_the_first_start(world: World, when: When) -> None:
    async with Screen(world, size=(100, 30)) as screen:
        await when(screen)
        screen.send("hi\r")
        await screen.until("Welcome to Yarrow. No model is set up yet.")
        screen.send("\x1b[B")
        await screen.until("Enter select")
        assert not (world.home / ".yarrow" / "config.json").exists()


async def test_early_input_does_not_answer_a_question(world: World) -> None:
    call = {"call": {"name": "bash", "arguments": {"command": "touch made"}}}
    world.script([call], [{"text": "ok"}], permissions={"rules": {"bash": "ask"}})
    world.home.chmod(0o700)
    socket = world.home / "s"
    attach = ("--attach", f"unix:{socket}")
    async with served(world, socket), Screen(world, *attach) as first:
        await first.ready()
        first.send("go\r")
        await first.until(TO_ANSWER)
        async with Screen(world, *attach, "-c") as second:
            await when_it_takes_keys(second)
            second.send("y\r")
            await second.until(TO_ANSWER)
            await second.until("touch made")
            assert TO_ANSWER in first.text
            await answer(second, 4)
            await first.until("Denied by another client: touch made")
            await second.until("Denied by you: touch made")
        assert not (world.project / "made").exists()


async def test_keys_typed_between_two_views_are_preserved(world: World) -> None:
    world.script([{"text": "an answer"}])
    async with Screen(world) as screen:
        await screen.ready()
        for _ in range(10):
            screen.send("/tree\r")
            await screen.until("R rebase")
            assert screen.takes_keys
            screen.send("\x1b")
            while screen.emulator.is_alternate:
                assert screen.takes_keys
                await asyncio.sleep(0)
        screen.send("\x04")
        assert await screen.ended() == 0
