"""However the terminal UI ends, the terminal is as it was: cursor, line, screen and pastes."""

import sys
from collections.abc import Awaitable, Callable

import pytest

from doubles.screen import Screen
from doubles.world import World

Place = Callable[[Screen], Awaitable[None]]
BROKEN = """
from yarrow.client.tui.{module} import {owner}
def broken(*_):
    raise RuntimeError("broken on purpose")
{owner}.{name} = broken
from yarrow.cli.entry import main
raise SystemExit(main())
"""
"""Runs the command with one of its parts broken."""


async def in_the_editor(screen: Screen) -> None:
    screen.send("half a thought")
    await screen.until("half a thought")


async def in_a_view(screen: Screen) -> None:
    screen.send("/model\r")
    await screen.until(lambda _: screen.emulator.is_alternate and "Enter take it" in screen.text)


async def at_a_question(screen: Screen) -> None:
    screen.send("go\r")
    await screen.until(lambda _: screen.emulator.is_alternate and "y once" in screen.text)


PLACES = [in_the_editor, in_a_view, at_a_question]


def asking(world: World) -> World:
    call = {"call": {"name": "bash", "arguments": {"command": "true"}}}
    world.script([call], [{"text": "ok"}], permissions={"rules": {"bash": "ask"}})
    return world


async def test_case_U_03_ctrl_c_twice(world: World) -> None:
    async with Screen(asking(world)) as screen:
        await screen.ready()
        screen.send("draft\x03")
        await screen.until(lambda _: "draft" not in screen.text)
        screen.send("\x03")
        assert (await screen.ended(), screen.left_behind()) == (0, [])


@pytest.mark.parametrize("keys", ["\x04", "/quit\r"])
async def test_case_U_03_leaving(world: World, keys: str) -> None:
    async with Screen(asking(world)) as screen:
        await screen.ready()
        screen.send(keys)
        assert (await screen.ended(), screen.left_behind()) == (0, [])
        (path,) = world.session_files() or [None]
        assert path is None or "go on with: yarrow -r " in screen.text


async def test_ctrl_d_leaves_only_an_empty_editor(world: World) -> None:
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
        assert await screen.ended() != 0


@pytest.mark.parametrize(
    ("module", "owner", "name", "keys"),
    [
        ("app", "App", "abort", "\x1b"),
        ("scene", "Scene", "take", "go\r"),
        ("scene", "Scene", "frame", ""),
        ("views.picker", "ListView", "_move", "/model\r\x1b[B"),
        ("app", "App", "say", "go\r"),
    ],
)
async def test_case_U_03_an_error_of_our_own(world: World, module: str, owner: str, name: str, keys: str) -> None:
    code = BROKEN.format(module=module, owner=owner, name=name)
    async with Screen(asking(world), command=(sys.executable, "-c", code)) as screen:
        if keys:
            await screen.ready()
            head, _, view_key = keys.partition("\x1b[")
            screen.send(head)
            if view_key:
                await screen.until("Enter take it")
                screen.send(f"\x1b[{view_key}")
        assert await screen.ended() == 1
        assert screen.left_behind() == []
        assert "broken on purpose" in screen.text
