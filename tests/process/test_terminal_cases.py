"""Cases of command lines, on a terminal: pipes beside it, refusals, what others print, who leaves, questions."""

import asyncio
import shlex
import sys

import pytest

from doubles.chat_server import ChatServer, Reply, chunk
from doubles.places import TO_ANSWER
from doubles.processes import children, gone
from doubles.screen import Screen
from doubles.world import World

YARROW = shlex.join([sys.executable, "-m", "yarrow"])
NOISY = """
import os, sys, warnings


def shout(arguments, cwd):
    print("printed by an extension")
    os.write(1, b"written by an extension\\n")
    warnings.warn("warned of by an extension")
    os.system("echo said by a child; echo complained by a child >&2")
    return "SHOUT"


def flood(arguments, cwd):
    for number in range(20000):
        print(f"flood {number}", flush=True)
    return "FLOOD"


def extend(yarrow):
    yarrow.command("shout", shout)
    yarrow.command("flood", flood)
"""


@pytest.mark.parametrize(("before", "asked"), [("sleep 60", "hi"), ("echo ctx", "ctx")])
async def test_case_C_01_a_pipe_beside_a_terminal(world: World, before: str, asked: str) -> None:
    world.script([{"expect": {"contains": asked}}, {"text": "an answer"}])
    async with Screen(world, command=("sh", "-c", f"{before} | {YARROW} -p hi; echo code $?")) as screen:
        await screen.until("an answer")
        screen.close()


@pytest.mark.parametrize("mode", [[], ["--plain"]])
async def test_case_C_02_a_failed_prompt_does_not_set_a_conversations_exit_code(world: World, mode: list[str]) -> None:
    world.script([{"error": {"code": "INVALID_REQUEST", "message": "messages: too odd"}}])
    async with Screen(world, *mode) as screen:
        await screen.until(lambda _: any(row.startswith(("\u276f", ">")) for row in screen.rows))
        screen.send("x\r")
        await screen.until("messages: too odd")
        screen.send("\x04")
        assert await screen.ended() == 0
        assert "Traceback" not in screen.text


async def test_case_C_03_output_of_an_extension_keeps_the_screen_intact(world: World) -> None:
    (world.home / ".yarrow").mkdir()
    (world.home / ".yarrow" / "noisy.py").write_text(NOISY)
    world.script([{"text": "heard"}], [{"text": "again"}], extensions=["noisy.py"])
    async with Screen(world, size=(140, 40)) as screen:
        await screen.ready()
        screen.send("/shout\r")
        await screen.until("heard")
        for line in (
            "printed by an extension",
            "written by an extension",
            "UserWarning: warned of by an extension",
            "said by a child",
            "complained by a child",
        ):
            await screen.until(line)
            (row,) = [row for row in screen.rows if line in row]
            assert row == line or row.endswith(line), "it does not stand on a row of its own"
        screen.send("typed")
        await screen.until(lambda _: screen.editor == ["typed"] and screen.place == (7, 0))
        screen.send("\x03/flood\r")
        await screen.until("again")
        await screen.until("More output was dropped. Use 2>FILE to keep it.")
        screen.send("\x04")
        assert await screen.ended() == 0
        assert screen.left_behind() == []


async def test_output_of_an_extension_does_not_disturb_an_external_editor(world: World) -> None:
    program = world.home / "editor"
    program.write_text('#!/bin/sh\ntest -t 0 && test -t 1 && test -t 2 && echo "on a terminal" >> "$1"\n')
    program.chmod(0o755)
    world.script([{"text": "ok"}])
    async with Screen(world, env={"VISUAL": str(program)}) as screen:
        await screen.ready()
        screen.send("\x18\x05")
        await screen.until(lambda _: screen.editor == ["on a terminal"])


async def test_case_C_04_a_closed_terminal_ends_the_run(world: World) -> None:
    going = Reply([chunk({"role": "assistant", "content": "a beginning"}), asyncio.Event()])
    async with ChatServer([going]) as server:
        world.serve_by(server.root)
        command = ("sh", "-c", f"{YARROW} 2>{world.home}/said; exit $?")
        async with Screen(world, command=command) as screen:
            await screen.ready()
            screen.send("go\r")
            await screen.until("a beginning")
            (pid,) = children(screen.process.pid)
            screen.close()
            await gone(pid)
        assert (world.home / "said").read_text() == ""
        texts = [getattr(record, "text", "") for record in world.records()]
        assert "go" in texts
        assert "a beginning" in texts


async def test_case_C_05_a_question_is_withdrawn_without_a_client(world: World) -> None:
    call = {"call": {"name": "bash", "arguments": {"command": "touch made"}}}
    world.script([call], [{"text": "ok"}], permissions={"rules": {"bash": "ask"}})
    async with Screen(world) as screen:
        await screen.ready()
        screen.send("go\r")
        await screen.until(TO_ANSWER)
        screen.close()
        assert await screen.ended() == 130
    assert not (world.project / "made").exists()
    async with Screen(world, "-c") as screen:
        await screen.ready()
        assert TO_ANSWER not in screen.text


@pytest.mark.parametrize("line", ["/nope", "/skill:nope"])
async def test_line_by_line_an_unknown_command_is_not_sent_to_the_model(world: World, line: str) -> None:
    world.script([{"expect": {"contains": "/etc/hosts"}}, {"text": "an answer"}])
    async with Screen(world, "--plain", size=(120, 24)) as screen:
        await screen.until(lambda _: screen.rows[1].startswith(">"))
        screen.send(f"{line}\r")
        await screen.until(f"Unknown command {line}.")
        screen.send("/etc/hosts is what?\r")
        await screen.until("an answer")


async def test_a_command_selected_in_the_menu_runs_at_once(world: World) -> None:
    world.script([{"text": "an answer"}])
    async with Screen(world) as screen:
        await screen.ready()
        screen.send("/hel")
        await screen.until("keys and commands")
        screen.send("\t")
        await screen.until(lambda _: screen.editor[:1] == ["/help"])
        screen.send("\r")
        await screen.until("Keys and commands")
