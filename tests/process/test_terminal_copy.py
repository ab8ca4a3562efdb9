"""/copy puts the last answer into the clipboard: by a program where there is one, and by the terminal itself."""

import base64
import re

import pytest

from doubles.desktop import program
from doubles.multiplexer import Tmux
from doubles.screen import Screen
from doubles.world import World

ANSWER = "# Head\n\n- \u00fcber **한글**\n\n```\ncode\n```"
LONG = "\ud55c" * 60_000


async def copied(screen: Screen) -> None:
    await screen.ready()
    screen.send("go\r")
    await screen.until("code")
    await screen.until("ready")
    screen.send("/copy\r")
    await screen.until("Copied the last answer")


@pytest.mark.parametrize("by", ["the terminal", "the program"])
async def test_an_answer_is_copied_in_tmux(world: World, by: str) -> None:
    world.script([{"text": ANSWER}])
    nothing = world.home / "nothing"
    nothing.mkdir()
    async with Tmux(world, env={"PATH": str(nothing)} if by == "the terminal" else {}) as tmux:
        await tmux.ready()
        await tmux.type("go")
        await tmux.keys("Enter")
        await tmux.until("code")
        await tmux.type("/copy")
        await tmux.keys("Enter")
        await tmux.until("to the tmux buffer (" if by == "the program" else "if your terminal allows it")
        assert await tmux.buffer() == ANSWER


@pytest.mark.parametrize("name", ["wl-copy", "xclip", "pbcopy"])
async def test_a_clipboard_program_receives_the_whole_answer(world: World, name: str) -> None:
    world.script([{"text": ANSWER}])
    environment = program(world, name, f"exec /bin/cat > {world.home}/taken")
    async with Screen(world, env=environment) as screen:
        await copied(screen)
        await screen.until(f"to the clipboard with {name} (")
        assert (world.home / "taken").read_text() == ANSWER


@pytest.mark.parametrize("body", ["exit 1", "while :; do :; done", "exec <&-; while :; do :; done"])
async def test_a_failing_or_hanging_clipboard_program_is_skipped(world: World, body: str) -> None:
    world.script([{"text": ANSWER}])
    async with Screen(world, env=program(world, "wl-copy", body)) as screen:
        await copied(screen)
        await screen.until("if your terminal allows it")


async def test_text_sent_to_the_terminal_clipboard_is_bounded(world: World) -> None:
    world.script([{"text": f"{LONG}\n\ncode"}])
    async with Screen(world, env={"PATH": "/nowhere"}) as screen:
        await copied(screen)
        await screen.until("24,998 of 60,006 characters")
        found = re.search(rb"\x1b\]52;c;([^\x07]*)\x07", screen.drawn)
        assert found is not None
        assert len(found[1]) <= 100_000
        assert base64.b64decode(found[1]).decode() == LONG[:24_998]
