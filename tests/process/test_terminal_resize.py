"""Resizing while an answer is streamed, in multiplexers: output appears exactly once, and nothing stale is left."""

import asyncio
import re
import shutil
import sys
from collections.abc import Sequence

import pytest

from doubles.chat_server import DONE, ChatServer, Piece, Reply, chunk, finish
from doubles.multiplexer import Tmux
from doubles.screen import SIGN, Screen
from doubles.world import World

SIZES = [(60, 24), (100, 30), (44, 24), (120, 40), (60, 20), (90, 24), (50, 24), (80, 24)]
"""Narrower and wider by turns; the unfinished block stays within the screen."""
BLOCKS = range(len(SIZES))


def answer(gates: Sequence[asyncio.Event]) -> Reply:
    """Blocks of several kinds, each finished, and behind each one that is not until its gate opens."""
    pieces: list[Piece] = [chunk({"role": "assistant", "content": ""})]
    for number, gate in enumerate(gates):
        block = (
            f"block{number} {'word ' * 25}end{number}\n\n- item{number}\n- other{number}\n\n```\ncode{number}\n```\n\n"
        )
        pieces += [
            chunk({"content": block}),
            chunk({"content": f"unfinished{number} {'more ' * 15}live{number}"}),
            gate,
            chunk({"content": f" said{number}\n\n"}),
        ]
    return Reply([*pieces, finish("stop"), DONE])


def once(whole: str) -> dict[str, int]:
    """Number of occurrences of each piece that does not appear exactly once."""
    pieces = [
        f"{kind}{number}"
        for number in BLOCKS
        for kind in ("block", "end", "item", "other", "code", "unfinished", "said", "live")
    ]
    # A terminal that rewrapped lines may split a word at the end of a row.
    text = re.sub(r"\s+", "", whole)
    return {piece: found for piece in pieces if (found := len(re.findall(rf"{piece}(?!\d)", text))) != 1}


@pytest.mark.parametrize("term", ["tmux-256color", "screen", "xterm-256color"])
async def test_tmux_shows_every_block_once_after_resizes_while_streaming(world: World, term: str) -> None:
    gates = [asyncio.Event() for _ in SIZES]
    async with ChatServer([answer(gates)]) as server:
        world.serve_by(server.root)
        async with Tmux(world, term=term) as tmux:
            await tmux.ready()
            await tmux.type("go")
            await tmux.keys("Enter")
            for number, (size, gate) in enumerate(zip(SIZES, gates, strict=True)):
                await tmux.until(lambda rows, number=number: f"live{number}" in "".join("".join(rows).split()))
                await tmux.resize(*size)
                gate.set()
            await tmux.until("ready")
            whole = await tmux.whole()
            assert once("".join(whole)) == {}, "\n".join(whole)
            assert [row for row in whole if "thinking" in row] == []
            assert len([row for row in whole if row.startswith("ready")]) == 1
            assert len([row for row in whole if row.strip() == SIGN.strip()]) == 1
            assert await tmux.told("#{alternate_on} #{mouse_any_flag} #{cursor_flag}") == "0 0 1"


async def test_tmux_resized_repeatedly_loses_nothing_printed(world: World) -> None:
    gates = [asyncio.Event() for _ in SIZES]
    async with ChatServer([answer(gates)]) as server:
        world.serve_by(server.root)
        async with Tmux(world) as tmux:
            await tmux.ready()
            await tmux.type("go")
            await tmux.keys("Enter")
            for number, gate in enumerate(gates):
                await tmux.until(lambda rows, number=number: f"live{number}" in "".join("".join(rows).split()))
                gate.set()
                for columns in (76, 70, 64, 60, 66, 72, 80):
                    await tmux.resize(columns, 24)
            await tmux.until(f"said{BLOCKS[-1]}")
            whole = await tmux.whole()
            lost = [piece for piece, found in once("".join(whole)).items() if not found]
            assert lost == [], "\n".join(whole)


async def test_tmux_views_restore_the_screen(world: World) -> None:
    world.script([{"text": "an answer"}])
    async with Tmux(world) as tmux:
        await tmux.ready()
        await tmux.type("hi")
        await tmux.keys("Enter")
        before = await tmux.until(lambda rows: "an answer" in "\n".join(rows) and "ready" in "\n".join(rows))
        await tmux.type("/tree")
        await tmux.keys("Enter")
        await tmux.until("R rebase")
        assert await tmux.told("#{alternate_on}") == "1"
        await tmux.resize(100, 30)
        await tmux.until(lambda rows: any("R rebase" in row for row in rows[28:]))
        await tmux.resize(80, 24)
        await tmux.until(lambda rows: len(rows) == 24 and "R rebase" in rows[23])
        await tmux.keys("Escape")
        after = await tmux.until(lambda rows: rows[:3] == before[:3] and "ready" in "\n".join(rows))
        assert [row for row in after if row] == [row for row in before if row]


async def test_tmux_pastes_ten_thousand_lines(world: World) -> None:
    world.script([{"text": "got it"}])
    async with Tmux(world) as tmux:
        await tmux.ready()
        await tmux.paste("\n".join(f"line {number}" for number in range(10_000)))
        await tmux.until("[pasted 10,000 lines #1]")
        await tmux.keys("Enter")
        await tmux.until("got it")


@pytest.mark.parametrize("term", ["screen", "screen-256color"])
async def test_screen_shows_every_block_once_after_resizes_while_streaming(world: World, term: str) -> None:
    program = shutil.which("screen")
    assert program, "scripts/system.sh installs it"
    settings = world.home / "screenrc"
    settings.write_text(f"term {term}\ndefscrollback 5000\nstartup_message off\nmaptimeout 5\ndefutf8 on\nescape ^@@\n")
    (world.home / "sockets").mkdir(mode=0o700)
    command = (program, "-c", str(settings), "-S", "one", sys.executable, "-m", "yarrow")
    gates = [asyncio.Event() for _ in SIZES]
    async with ChatServer([answer(gates)]) as server:
        world.serve_by(server.root)
        env = {"SCREENDIR": str(world.home / "sockets")}
        async with Screen(world, command=command, env=env) as screen:
            await screen.until(lambda _: any(row.startswith(SIGN.strip()) for row in screen.rows))
            screen.send("go\r")
            for number, ((columns, _), gate) in enumerate(zip(SIZES, gates, strict=True)):
                await screen.until(lambda _, number=number: f"live{number}" in "".join(screen.text.split()))
                screen.resize(columns, 24)
                gate.set()
            await screen.until("ready")
            copy = world.home / "copy"
            told = await asyncio.create_subprocess_exec(
                program, "-S", "one", "-X", "hardcopy", "-h", str(copy), env=world.environment | env
            )
            assert await told.wait() == 0
            while not copy.exists() or b"ready" not in copy.read_bytes():
                await asyncio.sleep(0.02)
            whole = copy.read_text("utf-8", "replace").split("\n")
            # GNU screen drops the oldest rows of its history when it rewraps lines, whatever the program does.
            wrong = {piece: found for piece, found in once("".join(whole)).items() if found or not piece.endswith("0")}
            assert wrong == {}, "\n".join(whole)
            assert [row for row in whole if "thinking" in row] == []
            screen.send("\x04")
            await screen.ended()
