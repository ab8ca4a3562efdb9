"""However the terminal UI ends, the terminal is as it was: cursor, line, screen and pastes."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable

import pytest

from doubles.chat_server import Reply, chunk
from doubles.opened import opened
from doubles.places import PLACES, Place, asking
from doubles.processes import gone
from doubles.screen import SECONDS, Screen
from doubles.world import World

BROKEN = """
from yarrow.client.tui.{module} import {owner}
def broken(*_):
    raise RuntimeError("broken on purpose")
assert hasattr({owner}, "{name}")
{owner}.{name} = broken
from yarrow.cli.entry_point import main
raise SystemExit(main())
"""
"""Runs the command with one of its parts broken."""


async def test_case_U_03_ctrl_c_twice(world: World) -> None:
    async with Screen(asking(world)) as screen:
        await screen.ready()
        screen.send("draft\x03")
        await screen.until(lambda _: "draft" not in screen.text)
        screen.send("\x03")
        assert (await screen.ended(), screen.left_behind()) == (0, [])


@pytest.mark.parametrize("keys", ["\x04", "/quit\r"])
async def test_case_U_03_quitting(world: World, keys: str) -> None:
    async with Screen(asking(world)) as screen:
        await screen.ready()
        screen.send(keys)
        assert (await screen.ended(), screen.left_behind()) == (0, [])
        (path,) = world.session_files() or [None]
        assert path is None or "Resume with: yarrow -r " in screen.text


async def test_ctrl_d_quits_only_with_an_empty_editor(world: World) -> None:
    async with Screen(asking(world)) as screen:
        await screen.ready()
        screen.send("a\x04\x7f\x04")
        assert await screen.ended() == 0


@pytest.mark.parametrize("place", PLACES)
async def test_case_U_03_the_terminal_is_closed(world: World, place: Place) -> None:
    async with Screen(asking(world)) as screen:
        await screen.ready()
        await place(screen)
        screen.close()
        assert await screen.ended() == 130


@pytest.mark.parametrize(
    ("module", "owner", "name", "keys"),
    [
        ("app", "App", "_abort", "\x1b"),
        ("view_state", "ViewState", "apply_events", "go\r"),
        ("view_state", "ViewState", "make_frame", ""),
        ("views.list_view", "ListView", "_move", "/model\r\x1b[B"),
        ("app", "App", "add_note", "!\r"),
    ],
)
async def test_case_U_03_an_internal_error(world: World, module: str, owner: str, name: str, keys: str) -> None:
    code = BROKEN.format(module=module, owner=owner, name=name)
    async with Screen(asking(world), command=(sys.executable, "-c", code)) as screen:
        if keys:
            await screen.ready()
            head, _, view_key = keys.partition("\x1b[")
            screen.send(head)
            if view_key:
                await screen.until("Enter select")
                screen.send(f"\x1b[{view_key}")
        assert await screen.ended() == 1
        assert screen.left_behind() == []
        assert "broken on purpose" in screen.text


UNFINISHED = "first paragraph\n\nsecond, which is not fin"


async def by_ctrl_d(screen: Screen) -> int:
    screen.send("\x04")
    return 0


async def by_ctrl_c(screen: Screen) -> int:
    screen.send("\x03")
    await screen.until("Press Ctrl+C again to quit")
    screen.send("\x03")
    return 0


async def by_a_signal(screen: Screen) -> int:
    screen.process.send_signal(signal.SIGTERM)
    return 130


@pytest.mark.parametrize("way", [by_ctrl_d, by_ctrl_c, by_a_signal])
async def test_an_unfinished_block_is_printed_once_at_the_end(
    world: World, way: Callable[[Screen], Awaitable[int]]
) -> None:
    reply = Reply([chunk({"role": "assistant", "content": UNFINISHED}), asyncio.Event()])
    async with opened(world, reply) as (screen, _):
        screen.send("go\r")
        await screen.until("not fin")
        code = await way(screen)
        assert await screen.ended() == code
        whole = "\n".join(screen.whole)
        assert whole.count("second, which is not fin") == 1
        assert whole.count("first paragraph") == 1
        assert "Run interrupted" in whole
        assert screen.left_behind() == []


async def test_an_unfinished_block_of_an_aborted_run_is_printed_once(world: World) -> None:
    reply = Reply([chunk({"role": "assistant", "content": UNFINISHED}), asyncio.Event()])
    async with opened(world, reply) as (screen, _):
        screen.send("go\r")
        await screen.until("not fin")
        screen.send("\x1b")
        await screen.until("Run interrupted")
        await screen.until("ready")
        screen.send("\x04")
        assert await screen.ended() == 0
        assert "\n".join(screen.whole).count("second, which is not fin") == 1


STUBBORN = """#!/bin/sh
trap '' TERM HUP INT
echo $$ > {home}/editor.pid
sleep 3600 &
echo $! > {home}/sleeper.pid
while :; do sleep 3600; done
"""
"""An editor that ignores SIGTERM and started another process."""


async def a_signal(screen: Screen) -> None:
    screen.process.send_signal(signal.SIGTERM)


async def a_closed_terminal(screen: Screen) -> None:
    screen.close()


@pytest.mark.parametrize("end", [a_signal, a_closed_terminal])
async def test_an_external_editor_ends_with_the_program(world: World, end: Place) -> None:
    program = world.home / "stubborn"
    program.write_text(STUBBORN.format(home=world.home))
    program.chmod(0o755)
    async with Screen(asking(world), env={"VISUAL": str(program)}) as screen:
        await screen.ready()
        screen.send("begun\x18\x05")
        pids = [await pid_in(world, name) for name in ("editor.pid", "sleeper.pid")]
        await end(screen)
        assert await screen.ended() == 130
        for pid in pids:
            await gone(pid)


async def pid_in(world: World, name: str) -> int:
    async with asyncio.timeout(SECONDS):
        while not (text := (world.home / name).read_text() if (world.home / name).exists() else "").endswith("\n"):
            await asyncio.sleep(0.01)
        return int(text)
