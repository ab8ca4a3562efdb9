"""Typing and pasting: long pastes, wide characters, history, completion, and where the cursor stands."""

import re
import stat
import time
from unicodedata import normalize

import pytest
from wcwidth import wcwidth

from doubles.chat_server import says
from doubles.opened import opened
from doubles.places import Place, asking, in_a_question, in_a_view, in_the_editor
from doubles.screen import SIGN, Screen
from doubles.world import World
from yarrow.message import Message, Role

LINES = 10_000
PASTE = "\n".join(f"line {number}" for number in range(LINES))


def said(world: World) -> list[str]:
    return [record.text for record in world.records() if isinstance(record, Message) and record.role is Role.USER]


@pytest.mark.parametrize("paste", [PASTE, PASTE.replace("line", "\x1b[31mline\x1b[A\x1b[0m")], ids=["plain", "escapes"])
@pytest.mark.parametrize("marked", [True, False])
async def test_case_U_01_a_long_paste(world: World, paste: str, *, marked: bool) -> None:
    async with opened(world, says("got it")) as (screen, server):
        began = time.monotonic()
        if marked:
            screen.paste(paste)
        else:
            screen.send(paste.replace("\n", "\r"))
        await screen.until(f"[pasted {LINES:,} lines #1]")
        assert time.monotonic() - began < 20  # generous: linear work takes a fraction of a second
        screen.send(" please")
        await screen.until("#1] please")
        assert server.prompts == []
        screen.send("\r")
        await screen.until("got it")
        assert server.prompts[0]["messages"][-1]["content"] == f"{paste} please"
        assert len(server.prompts) == 1


async def test_a_placeholder_is_deleted_at_once_and_short_pastes_stay_text(world: World) -> None:
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


CLUSTERS = {
    "marks": "e\u0301a\u0308o\u0302\u0323x" * 6,
    "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f44d\U0001f3fd\U0001f1e9\U0001f1ea\u27641\ufe0f\u20e3"
    * 3,
    "right to left": "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd abc \u0645\u0631\u062d\u0628\u0627",
    "vowels": "\u0e17\u0e33\u0e19\u0e49\u0e33 \u0928\u092e\u0938\u094d\u0924\u0947",
}
"""Characters of which terminals draw several as one, or in another order."""


@pytest.mark.parametrize("columns", [80, 20])
@pytest.mark.parametrize("kind", CLUSTERS)
async def test_case_U_02_the_cursor_follows_each_character(world: World, kind: str, columns: int) -> None:
    text = CLUSTERS[kind]
    world.script([{"text": text}])
    async with Screen(world, size=(columns, 24)) as screen:
        await screen.ready()
        for number, character in enumerate(text, 1):
            screen.send(character)
            await screen.until(lambda _, number=number: screen.place == columns_of(text[:number], columns)[-1])
        assert kind != "marks" or normalize("NFC", text) == normalize("NFC", "".join(screen.editor)), "marks are lost"
        for number in reversed(range(len(text) - 12, len(text))):
            screen.send("\x1b[D")
            # No cursor is seen between a letter in the last column and a mark on it.
            if (place := columns_of(text, columns)[number])[0] < columns:
                await screen.until(lambda _, place=place: screen.place == place)
        joined = [character for character in "\u200d\ufe0f\u20e3\U0001f3fd\U0001f1e9" if character in screen.text]
        assert joined == [], "a terminal would draw these as one with what stands before them"
        screen.send("\r")
        await screen.until(lambda _: world.session_files() and said(world) == [text])


@pytest.mark.parametrize("columns", [1, 2, 3])
async def test_case_U_02_no_crash_in_a_tiny_window(world: World, columns: int) -> None:
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
        width = max(wcwidth(character), 0)
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
        await screen.until(lambda _: screen.editor[:1] == ["/stats"])
        screen.send("\x03@ch")
        await screen.until("chapter.txt")
        assert "chaff.txt" not in screen.text
        screen.send("\t\r")
        await screen.until(lambda _: re.fullmatch(r"@cha\S+", "".join(screen.editor[:1])))
        screen.send("\x03/thinking h")
        await screen.until("/thinking h")
        screen.send("\t")
        await screen.until("/thinking high")


async def test_the_users_external_editor(world: World) -> None:
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


async def test_an_external_editor_that_cannot_run_is_reported(world: World) -> None:
    world.script([{"text": "ok"}])
    async with Screen(world, env={"VISUAL": "/no/such/editor"}) as screen:
        await screen.ready()
        screen.send("kept\x18\x05")
        await screen.until(lambda _: "set VISUAL or EDITOR" in " ".join(screen.text.split()))
        assert screen.editor == ["kept"]


async def test_ctrl_z_inserts_nothing(world: World) -> None:
    world.script([{"text": "got it"}])
    async with Screen(world) as screen:
        await screen.ready()
        screen.send("on\x1ae")
        await screen.until(f"{SIGN}one")
        screen.send("\r")
        await screen.until("got it")
        assert said(world) == ["one"]


async def in_a_message(screen: Screen) -> None:
    """Where a message is written that goes to the model with a no."""
    await in_a_question(screen)
    screen.send("5\r")
    await screen.until("Tell the agent why: _")


STRAYS = (
    "\x1b[31m",
    "\x1b[M !!",
    "\x1b[<0;3;4M",
    "\x1b[96;14;13M",
    "\x1b[12;40R",
    "\x1b[?62;22c",
    "\x1b[>1;10;0c",
    "\x1b[I",
    "\x1b[O",
    "\x1b[8;24;80t",
    "\x1b[97;5u",
    "\x1b]10;rgb:00/00/00\x1b\\",
    "\x1bP>|term 1\x1b\\",
)
"""Sequences of terminals that are not keys."""


@pytest.mark.parametrize(
    ("place", "keys", "shows"),
    [
        (in_the_editor, "s", f"{SIGN}half a thoughts"),
        (in_a_view, "/x", "/x_  0 of 1"),
        (in_a_message, "why", "Tell the agent why: why_"),
        (in_a_question, "x", f"{SIGN}x"),
    ],
)
async def test_unknown_key_sequences_do_nothing(world: World, place: Place, keys: str, shows: str) -> None:
    async with Screen(asking(world)) as screen:
        await screen.ready()
        await place(screen)
        screen.send("".join(STRAYS))
        for key in keys:
            screen.send(key)
        await screen.until(shows)


@pytest.mark.parametrize("keys", ["\x1b[13;2u", "\x1b[27;2;13~", "\x1b[13;5u", "\n"])
async def test_shift_enter_is_a_new_line(world: World, keys: str) -> None:
    world.script([{"text": "got it"}])
    async with Screen(world) as screen:
        await screen.ready()
        for part in ("one", keys, "two", "\r"):
            screen.send(part)
            await screen.until(lambda _, part=part: screen.editor[-1:] == [part] or not part.isalpha())
        await screen.until("got it")
        assert said(world) == ["one\ntwo"]


async def test_a_tab_is_shown_as_spaces_and_sent_as_a_tab(world: World) -> None:
    world.script([{"text": "got it"}])
    async with Screen(world) as screen:
        await screen.ready()
        screen.paste("if x:\n\ty\n\t\tz\tend")
        await screen.until(lambda _: screen.editor == ["if x:", "    y", "        z   end"] and screen.place == (15, 2))
        screen.send("\r")
        await screen.until("got it")
        assert said(world) == ["if x:\n\ty\n\t\tz\tend"]
