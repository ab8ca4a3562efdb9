"""Every view on every kind and size of terminal: drawn whole or refused in a sentence, the cursor where one types."""

import re

import pytest

from doubles.places import PAUSE
from doubles.screen import Screen, is_editor
from doubles.world import World

TURNS = (
    [
        {"thinking": "hm\nmore"},
        {"text": "# Head\n\nSome **words** of an answer.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"},
        {"call": {"name": "bash", "arguments": {"command": "seq 1 40"}}},
    ],
    [{"text": "the end"}],
    [{"call": {"name": "write", "arguments": {"path": "made.txt", "content": "x"}}}],
    [{"text": "made"}],
)
VIEWS = {
    "/tree": ("Enter resume · B branch · F fork · R rebase · / filter · Esc", "Enter B F R / Esc"),
    "/rebase": (
        "Space toggle · A all/none · Enter create · S create and summarize the rest · / filter · Esc cancel",
        "Space toggle · A all/none · Enter create · S summarize · / filter · Esc cancel",
        "Space A Enter S /",
    ),
    "/model": ("Enter select · / filter · Esc cancel", "Enter, /, Esc"),
    "/show": ("Up Down PgUp PgDn Home End · / search · Q or Esc back", "Up Down / Q"),
}
"""Commands that open a view, and texts of its last row, the longest first."""
QUESTION = {
    120: "Press Tab to answer · keep typing to send a message",
    80: "5. No, and tell the agent why…",
    20: "4. No",
}
"""Visible part of a question in each width."""


def is_whole(screen: Screen, feet: tuple[str, ...]) -> bool:
    """True if a view has its title in the first row and all keys that fit in the last."""
    foot = next(foot for foot in feet if len(foot) <= screen.emulator.columns)
    return bool(screen.rows[0]) and screen.rows[-1] == foot


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (20, 5)])
@pytest.mark.parametrize("term", ["xterm-256color", "screen", "linux"])
async def test_every_view_and_the_cursor(world: World, term: str, size: tuple[int, int]) -> None:
    world.script(*TURNS, permissions={"rules": {"bash": "auto", "write": "ask"}}, sandbox="off")
    async with Screen(world, size=size, env={"TERM": term}) as screen:
        await screen.ready()
        for number, key in enumerate("hello", 1):
            screen.send(key)
            await screen.until(lambda _, number=number: screen.place == (2 + number, 0))
        screen.send("\r")
        await screen.until("the end")
        await screen.until(lambda _: any("ready" in row or "scripted" in row for row in screen.rows))
        for line, feet in VIEWS.items():
            screen.send(f"{line}\r")
            await screen.until(lambda _, feet=feet: screen.emulator.is_alternate and is_whole(screen, feet))
            screen.send("\x1b[B\x1b[A\x1b")
            await screen.until(lambda _: not screen.emulator.is_alternate and screen.place == (2, 0))
        screen.send("make it\r")
        await screen.until(QUESTION[size[0]])
        await screen.press_until("\t", lambda _: not screen.emulator.shows_cursor, every=PAUSE)
        screen.send("4\r")
        await screen.until("made")
        screen.send("\x03/st")
        await screen.until(lambda _: "/stats" in screen.text and screen.cursor == (5, editor_row(screen)))
        screen.send("\x03")
        await screen.until(lambda _: screen.place == (2, 0) and "/st" not in screen.text)
        screen.send("\x04")
        assert await screen.ended() == 0
        assert screen.left_behind() == []


def editor_row(screen: Screen) -> int:
    """The row in which the editor begins."""
    return max(row for row, text in enumerate(screen.rows) if is_editor(text))


@pytest.mark.parametrize("size", [(120, 40), (20, 5)])
async def test_a_dumb_terminal_gets_line_by_line_output(world: World, size: tuple[int, int]) -> None:
    world.script([{"text": "an answer"}])
    async with Screen(world, size=size, env={"TERM": "dumb"}) as screen:
        await screen.until(lambda _: any(map(is_editor, screen.rows)))
        screen.send("hi\r")
        await screen.until("an answer")
        assert re.search(rb"\x1b", screen.drawn) is None


@pytest.mark.parametrize(("variables", "colours"), [({"NO_COLOR": "1"}, False), ({}, True)])
async def test_no_color_is_respected(world: World, variables: dict[str, str], *, colours: bool) -> None:
    world.script([{"text": "**an answer** `code`"}])
    async with Screen(world, env=variables) as screen:
        await screen.ready()
        screen.send("hi\r")
        await screen.until("an answer")
        await screen.until("ready")
        # Bold, reverse and the like are no colours.
        assert bool(re.search(rb"\x1b\[(?:\d+;)*(?:3|4|9)[0-8]", screen.drawn)) is colours


async def test_plain_output_prints_each_text_once(world: World) -> None:
    world.script([{"text": "an answer"}])
    async with Screen(world, "--plain") as screen:
        await screen.until(lambda _: any(map(is_editor, screen.rows)))
        screen.send("hi\r")
        await screen.until("an answer")
        assert screen.drawn.count(b"an answer") == 1
