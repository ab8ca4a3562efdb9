"""A request to end and a hang-up are obeyed wherever the terminal UI stands, and the terminal is as it was."""

import asyncio
import signal

import pytest

from doubles.chat_server import Reply, chunk
from doubles.opened import opened
from doubles.places import PLACES, Place, asking
from doubles.screen import Screen
from doubles.world import World

SOON = 5.0
"""Seconds within which it has ended."""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
async def test_case_U_03_a_signal(world: World, place: Place, number: signal.Signals) -> None:
    async with Screen(asking(world)) as screen:
        await screen.ready()
        await place(screen)
        screen.process.send_signal(number)
        assert await screen.ended(seconds=SOON) == 130
        assert screen.left_behind() == []
        assert "Traceback" not in screen.text


async def test_case_U_03_a_signal_while_streaming(world: World) -> None:
    reply = Reply([chunk({"role": "assistant", "content": "a beginning"}), asyncio.Event()])
    async with opened(world, reply) as (screen, _):
        screen.send("go\r")
        await screen.until("a beginning")
        screen.process.send_signal(signal.SIGTERM)
        assert await screen.ended(seconds=SOON) == 130
        assert screen.left_behind() == []
