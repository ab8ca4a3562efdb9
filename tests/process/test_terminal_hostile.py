"""Nothing that a model, a tool, a file or a name holds steers the terminal, in the terminal UI and beside it."""

import re

import pytest

from doubles.chat_server import ChatServer, page
from doubles.places import answer
from doubles.screen import Screen
from doubles.world import World

HOSTILE = "\x1b]52;c;cm0gLXJmIH4=\x07\x1b[2J\x1b[6n\x1b]8;;http://e\x07link\x1bc\x9b2J\x1b]0;title\x07\x1b[?1049h\x1bP+q\x1b\\"
SEQUENCES = [b"\x1b]52", b"\x1b[2J", b"\x1b[6n", b"\x1b]8", b"\x1bc", b"\xc2\x9b", b"\x1b]0;", b"\x1bP", b"\x07"]
PRINTED = r"\033]52;c;cm0=\007\033[2J\033[6n\033]8;;http://e\007\033c\033]0;title\007\033[?1049h"
NAME = "a\x1b[2Jb\x1b]0;t\x07.txt"


def obeyed(drawn: bytes | bytearray) -> list[bytes]:
    """The hostile sequences that the terminal was sent."""
    return [sequence for sequence in SEQUENCES if sequence in drawn]


async def test_case_U_04_texts_thinking_calls_outputs_and_file_names(world: World) -> None:
    (world.project / NAME).write_text(f"{HOSTILE}\n")
    world.script(
        [
            {"thinking": HOSTILE},
            {"text": f"{HOSTILE} `{HOSTILE}`\n\n```\n{HOSTILE}\n```\n\n"},
            {"text": f"| {HOSTILE} |\n|---|\n| [{HOSTILE}]({HOSTILE}) |\n"},
            {"call": {"name": "bash", "arguments": {"command": f"printf '{PRINTED}'; : '{HOSTILE}'"}, "id": HOSTILE}},
            {"call": {"name": "ls", "arguments": {}}},
            {"call": {"name": "read", "arguments": {"path": NAME}}},
            {"call": {"name": HOSTILE.replace("\x9b", ""), "arguments": {"a": HOSTILE}}},
            {"call": {"name": "bash", "arguments": HOSTILE}},
        ],
        [{"text": "the end"}],
        thinking="high",
    )
    async with Screen(world, size=(100, 50)) as screen:
        await screen.ready()
        screen.send("\x0f\x14go\r")
        await screen.until(lambda _: "the end" in screen.text or "error" in screen.text)
        await screen.until("ready")
        assert obeyed(screen.drawn) == []
        screen.send("/show\r")
        await screen.until(lambda _: screen.emulator.is_alternate)
        screen.send("\x1b")
        await screen.until(lambda _: not screen.emulator.is_alternate and "ready" in screen.text)
        screen.send("/rebase\r")
        await screen.until("Choose the messages to keep")
        assert obeyed(screen.drawn) == []
        screen.send("\x1b")
        await screen.until(lambda _: not screen.emulator.is_alternate)
        screen.send("/reload")
        await screen.until("/reload")
        screen.send("\r")
        await screen.until(lambda _: "/reload" not in screen.text)
        screen.send("@a\t")
        await screen.until('@"a')
        assert obeyed(screen.drawn) == []
        assert not screen.emulator.title_set
        assert not screen.emulator.bell_rung


async def test_case_U_04_a_question(world: World) -> None:
    call = {"call": {"name": "bash", "arguments": {"command": f"true; : '{HOSTILE}'"}}}
    world.script([call], [{"text": "the end"}], permissions={"rules": {"bash": "ask"}})
    async with Screen(world) as screen:
        await screen.ready()
        screen.send("go\r")
        await answer(screen, 4)
        await screen.until("the end")
        assert obeyed(screen.drawn) == []


@pytest.mark.parametrize(
    "line", [f"/name {HOSTILE}", f"/resume {HOSTILE}", f"/{HOSTILE}", f"/model {HOSTILE}", HOSTILE]
)
async def test_case_U_04_pastes_names_and_messages_of_the_user(world: World, line: str) -> None:
    world.script([{"text": "the end"}], [{"text": "another end"}])
    async with Screen(world) as screen:
        await screen.ready()
        screen.send("hi\r")
        await screen.until("the end")
        screen.paste(line)
        screen.send(" \r")
        await screen.until(
            lambda _: re.search(
                r"Named|no session|cannot|Unknown command|unknown provider|Model: |another", screen.text
            )
        )
        screen.send("\x03/tree\r")
        await screen.until("R rebase")
        screen.send("\x03")
        await screen.until(lambda _: not screen.emulator.is_alternate)
        assert obeyed(screen.drawn) == []


async def test_case_U_04_errors_in_the_terminal_and_in_plain_mode(world: World) -> None:
    refusal = page({"error": {"message": HOSTILE, "type": "invalid_request_error"}}, 400)
    async with ChatServer([refusal, refusal]) as server:
        world.serve_by(server.root)
        async with Screen(world) as screen:
            await screen.ready()
            screen.send("x\r")
            await screen.until("error: ")
            assert obeyed(screen.drawn) == []
        async with Screen(world, "-p", "x") as screen:
            assert await screen.ended() == 3
            assert obeyed(screen.drawn) == []


async def test_case_U_04_plain_mode_on_a_terminal(world: World) -> None:
    world.script(
        [
            {"text": HOSTILE},
            {"call": {"name": "bash", "arguments": {"command": f"printf '{PRINTED}'"}}},
            {"call": {"name": "read", "arguments": {"path": NAME}}},
        ],
        [{"text": "the end"}],
    )
    async with Screen(world, "-p", HOSTILE.replace("\x9b", "")) as screen:
        assert await screen.ended() == 0
        assert "the end" in screen.text
        assert obeyed(screen.drawn) == []
