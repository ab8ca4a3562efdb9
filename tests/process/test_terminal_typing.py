"""Typing and pasting: long pastes, wide characters, history, completion, and where the cursor stands."""

import re
import stat
import time

import pytest

from doubles.chat_server import ChatServer, says
from doubles.screen import SIGN, Screen
from doubles.world import World
from yarrow.message import Message, Role

LINES = 10_000
PASTE = "\n".join(f"line {number}" for number in range(LINES))


def said(world: World) -> list[str]:
    return [record.text for record in world.records() if isinstance(record, Message) and record.role is Role.USER]


@pytest.mark.parametrize("marked", [True, False])
async def test_case_U_01_a_long_paste(world: World, *, marked: bool) -> None:
    async with ChatServer([says("got it")]) as server:
        world.serve_by(server.root)
        async with Screen(world) as screen:
            await screen.ready()
            began = time.monotonic()
            if marked:
                screen.paste(PASTE)
            else:
                screen.send(PASTE.replace("\n", "\r"))
            await screen.until(f"[pasted {LINES:,} lines #1]")
            assert time.monotonic() - began < 1
            screen.send(" please")
            await screen.until("#1] please")
            assert server.prompts == []
            screen.send("\r")
            await screen.until("got it")
            assert server.prompts[0]["messages"][-1]["content"] == f"{PASTE} please"
            assert len(server.prompts) == 1


async def test_a_placeholder_is_deleted_whole_and_short_pastes_stay(world: World) -> None:
    world.script([{"text": "ok"}])
    async with Screen(world) as screen:
        await screen.ready()
        screen.paste("x" * 3000)
        await screen.until("[pasted 3,000 characters #1]")
        screen.send("\x7f")
        await screen.until(lambda _: "pasted" not in screen.text)
        screen.paste("two\nlines")
        await screen.until(lambda _: "lines" in screen.text and screen.cursor[0] == len("lines"))
        screen.send("\r")
        await screen.until("ok")
        assert said(world) == ["two\nlines"]


WIDE = "한글中文日本語ABC"


@pytest.mark.parametrize("columns", [80, 20, 7])
async def test_case_U_02_wide_characters(world: World, columns: int) -> None:
    world.script([{"text": "ok"}])
    async with Screen(world, size=(columns, 24)) as screen:
        await screen.ready()
        screen.send(WIDE)
        await screen.until(lambda _: "".join(row.strip() for row in screen.editor) == WIDE)
        at = columns_of(WIDE, columns)
        await screen.until(lambda _: screen.place == at[len(WIDE)])
        for left in (1, 2, 3):
            screen.send("\x1b[D")
            await screen.until(lambda _, left=left: screen.place == at[len(WIDE) - left])
        screen.send("x")
        await screen.until(lambda _: screen.place == columns_of(f"{WIDE[:-3]}xABC", columns)[len(WIDE) - 2])
        screen.send("\x7f")
        await screen.until(lambda _: screen.place == at[len(WIDE) - 3])
        screen.send("\x1b[D\x7f")
        await screen.until(lambda _: WIDE[:-5] + WIDE[-4:] in "".join(row.strip() for row in screen.rows))
        screen.send("\r")
        await screen.until("ok")
        assert said(world) == [WIDE[:-5] + WIDE[-4:]]


@pytest.mark.parametrize("columns", [1, 2, 3])
async def test_case_U_02_no_crash_in_a_sliver(world: World, columns: int) -> None:
    world.script([{"text": f"{WIDE} **bold**\n\n- a\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"}])
    async with Screen(world, size=(columns, 6)) as screen:
        await screen.until(lambda _: screen.emulator.marks_pastes)
        screen.send(f"{WIDE}\x1b[D\x1b[Dx\x7f\r")
        screen.send("/tree\r")
        screen.resize(80, 24)
        await screen.until("R rebase")
        screen.send("\x1b")
        await screen.until(lambda _: not screen.emulator.is_alternate)
        screen.send("\x04")
        assert (await screen.ended(), screen.left_behind()) == (0, [])


def columns_of(text: str, columns: int) -> list[tuple[int, int]]:
    """Where the cursor stands before each character of a text, and behind the last, wrapped at whole characters."""
    found: list[tuple[int, int]] = []
    column, row = len(SIGN), 0
    for character in [*text, " "]:
        width = 2 if ord(character) > 0x2E80 else 1
        if column + width > columns:
            column, row = 0, row + 1
        found.append((column, row))
        column += width
    return found


async def test_several_lines_history_and_the_draft(world: World) -> None:
    world.script([{"text": "first answer"}], [{"text": "second answer"}])
    async with Screen(world) as screen:
        await screen.ready()
        screen.send("one\ntwo")
        await screen.until(lambda _: screen.cursor[0] == len("two"))
        screen.send("\r")
        await screen.until("first answer")
        screen.send("draft")
        screen.send("\x1b[A")
        await screen.until(lambda _: screen.editor == ["one", "two"])
        screen.send("\x1b[A\x1b[A\x1b[B\x1b[B\x1b[B")
        await screen.until(lambda _: screen.editor == ["draft"])
    async with Screen(world, "-c") as screen:
        await screen.ready()
        screen.send("\x1b[A")
        await screen.until(lambda _: screen.editor == ["one", "two"])


async def test_completion_of_commands_files_and_words_after_a_command(world: World) -> None:
    (world.project / "chapter.txt").write_text("x")
    (world.project / "charts").mkdir()
    (world.project / "charts" / "one.csv").write_text("x")
    (world.project / ".gitignore").write_text("chaff.txt\n")
    (world.project / "chaff.txt").write_text("x")
    (world.project / ".git").mkdir()
    world.script([{"text": "ok"}])
    async with Screen(world) as screen:
        await screen.ready()
        screen.send("/st")
        await screen.until("/stats")
        screen.send("\t")
        await screen.until(lambda _: screen.editor[0] == "/stats")
        screen.send("\x03@ch")
        await screen.until("chapter.txt")
        assert "chaff.txt" not in screen.text
        screen.send("\t\r")
        await screen.until(lambda _: re.fullmatch(r"@cha\S+", screen.editor[0]))
        screen.send("\x03/thinking h")
        await screen.until("/thinking h")
        screen.send("\t")
        await screen.until("/thinking high")


async def test_the_persons_own_editor(world: World) -> None:
    world.script([{"text": "ok"}])
    program = world.home / "my editor"
    program.write_text('#!/bin/sh\nprintf " and more\\nlines" >> "$1"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    async with Screen(world, env={"VISUAL": f"'{program}'"}) as screen:
        await screen.ready()
        screen.send("begun\x18\x05")
        await screen.until("lines")
        screen.send("\r")
        await screen.until("ok")
        assert said(world) == ["begun\n and more\nlines"] or said(world) == ["begun and more\nlines"]


async def test_an_editor_that_cannot_be_run_says_so(world: World) -> None:
    world.script([{"text": "ok"}])
    async with Screen(world, env={"VISUAL": "/no/such/editor"}) as screen:
        await screen.ready()
        screen.send("kept\x18\x05")
        await screen.until("set VISUAL or EDITOR")
        assert screen.editor == ["kept"]
