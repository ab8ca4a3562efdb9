"""A request to end and a hang-up are obeyed wherever the terminal UI stands, and the terminal is as it was."""

import asyncio
import signal
from collections.abc import Awaitable, Callable

import pytest

from doubles.chat_server import ChatServer, Reply, chunk
from doubles.screen import Screen
from doubles.world import World

Place = Callable[[Screen], Awaitable[None]]
SOON = 5.0
"""Seconds within which it has ended."""


async def in_the_editor(screen: Screen) -> None:
    screen.send("half a thought")
    await screen.until("half a thought")


async def in_a_view(screen: Screen) -> None:
    screen.send("/model\r")
    await screen.until(lambda _: screen.emulator.is_alternate and "Enter take it" in screen.text)


async def at_a_question(screen: Screen) -> None:
    screen.send("go\r")
    await screen.until(lambda _: screen.emulator.is_alternate and "y once" in screen.text)


@pytest.mark.parametrize("place", [in_the_editor, in_a_view, at_a_question])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
async def test_case_U_03_a_signal(world: World, place: Place, number: signal.Signals) -> None:
    call = {"call": {"name": "bash", "arguments": {"command": "true"}}}
    world.script([call], [{"text": "ok"}], permissions={"rules": {"bash": "ask"}})
    async with Screen(world) as screen:
        await screen.ready()
        await place(screen)
        screen.process.send_signal(number)
        assert await screen.ended(seconds=SOON) == 130
        assert screen.left_behind() == []
        assert "Traceback" not in screen.text


async def test_case_U_03_a_signal_while_it_streams(world: World) -> None:
    reply = Reply([chunk({"role": "assistant", "content": "a beginning"}), asyncio.Event()])
    async with ChatServer([reply]) as server:
        world.serve_by(server.root)
        async with Screen(world) as screen:
            await screen.ready()
            screen.send("go\r")
            await screen.until("a beginning")
            screen.process.send_signal(signal.SIGTERM)
            assert await screen.ended(seconds=SOON) == 130
            assert screen.left_behind() == []
