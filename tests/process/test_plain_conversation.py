"""The conversation line by line: every command of the terminal UI works there, or says in a sentence what does."""

import asyncio
import re
import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from doubles.chat_server import ChatServer, Reply, chunk, page, says
from doubles.ollama_server import OllamaServer
from doubles.ollama_server import says as said_by_ollama
from doubles.screen import Screen
from doubles.world import World
from yarrow.cli.terminal_permission_prompts import QUIET_SECONDS
from yarrow.client.conversation import CHAT_COMMANDS


@asynccontextmanager
async def talking(world: World, *arguments: str, **more: Any) -> AsyncGenerator[Screen]:
    """A conversation that waits for a line, on a terminal that nothing may steer."""
    async with Screen(world, "--plain", *arguments, size=(130, 50), **more) as screen:
        await screen.until(lambda _: screen.text.startswith(">") or "\n>" in screen.text)
        yield screen
    assert b"\x1b" not in screen.drawn


async def asks_again(screen: Screen, what: str) -> None:
    """Wait for a text and the sign below it."""
    await screen.until(lambda _: re.search(rf"(?s){re.escape(what)}.*\n>$", screen.text.rstrip()))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/new", "Started a new session"),
        ("/thinking high", "Thinking: high"),
        ("/thinking", "usage: /thinking off|minimal|"),
        ("/permissions plan", "Permissions: plan"),
        ("/permissions x", "/permissions must be one of: auto, ask, deny, plan; got 'x'"),
        ("/permissions", 'No allowed calls. Answer a question with "always" to add one.'),
        ("/permissions list", 'No allowed calls. Answer a question with "always" to add one.'),
        ("/permissions revoke", "revoke needs the number of a call"),
        ("/permissions revoke 1", "'1' is not the number of an allowed call: there are none"),
        ("/permissions list 1", "'list 1' is not `list` or `revoke N`"),
        ("/dry-run", "Dry run: on (nothing will be changed)"),
        ("/dry-run off", "Dry run: off"),
        ("/name A name", "Named this session A name"),
        ("/resume", "run /tree to list sessions, then /resume SESSION"),
        ("/merge", "run /tree to list sessions, then /merge SESSION [--summary]"),
        ("/rebase", "run /show to list messages, then /rebase INDEX... [--squash]"),
        ("/tree", "(no messages yet)"),
        ("/show", "No messages yet"),
        ("/reload", "No messages yet"),
        ("/copy", "Nothing to copy yet: there is no answer."),
        ("/branch\t7", "yarrow: "),
        ("!", "usage: !COMMAND, !!COMMAND to hide it from the model"),
    ],
)
async def test_a_slash_command(world: World, line: str, said: str) -> None:
    world.script([{"text": "an answer"}])
    async with talking(world) as screen:
        screen.send(f"{line}\r")
        await asks_again(screen, said)
        assert "Unknown command" not in screen.text


async def test_a_call_allowed_for_the_session_is_listed_and_revoked(world: World) -> None:
    bash = {"call": {"name": "bash", "arguments": {"command": "echo o-n-e"}}}
    world.script([bash], [{"text": "first"}], [bash], [{"text": "second"}], permissions={"rules": {"bash": "ask"}})
    async with talking(world) as screen:
        screen.send("go\r")
        await screen.until("Answer:")
        await asyncio.sleep(QUIET_SECONDS * 1.1)  # the pause that makes an answer of a line
        screen.send("session\r")
        await asks_again(screen, "first")
        screen.send("/permissions\r")
        await asks_again(screen, "Allowed for this session:\n   1  bash: echo o-n-e (in ")
        screen.send("/permissions revoke 1\r")
        await asks_again(screen, "Revoked bash: echo o-n-e (in ")
        screen.send("again\r")
        await screen.until(lambda _: screen.text.count("Answer:") == 2)
        await asyncio.sleep(QUIET_SECONDS * 1.1)  # as before
        screen.send("no\r")
        await asks_again(screen, "second")


async def test_help_names_every_command(world: World) -> None:
    world.script([{"text": "an answer"}])
    async with talking(world) as screen:
        screen.send("/help\r")
        await asks_again(screen, "continue on the next line")
        missing = [name for name in CHAT_COMMANDS if name != "exit" and f"\n/{name}" not in screen.text]
        assert missing == []


async def test_models_are_listed_and_one_is_selected(world: World) -> None:
    async with ChatServer([says("by the other")]) as server:
        server.pages["/v1/models"] = page({"object": "list", "data": [{"id": "m"}, {"id": "other/one"}]})
        world.serve_by(server.root)
        async with talking(world) as screen:
            screen.send("/model\r")
            await asks_again(screen, "mock/m (in use)\nmock/other/one")
            screen.send("/model mock/other/one\r")
            await asks_again(screen, "Model: mock/other/one")
            screen.send("hi\r")
            await asks_again(screen, "by the other")
            assert server.prompts[-1]["model"] == "other/one"


async def test_a_new_session_has_its_own_messages_and_the_same_directory(world: World) -> None:
    world.script([{"text": "first answer"}], [{"text": "second answer"}])
    async with talking(world) as screen:
        screen.send("one\r")
        await asks_again(screen, "first answer")
        screen.send("/new\r")
        await asks_again(screen, "Started a new session")
    path = next(path for path in world.session_files() if "first answer" in path.read_text())
    async with talking(world, "-r", path.stem) as screen:
        screen.send("/new\r")
        await asks_again(screen, "Started a new session")
        screen.send("!pwd\r")
        await asks_again(screen, f"\n{world.project}")


@pytest.mark.parametrize(("sign", "is_told"), [("!", True), ("!!", False)])
async def test_a_shell_command(world: World, sign: str, *, is_told: bool) -> None:
    world.script([{"text": "an answer"}])
    async with talking(world) as screen:
        screen.send(f"{sign}echo o-n-e | tr -d -; printf '\\033[31mred\\033[2J\\n'; printf no-end; exit 3\r")
        await asks_again(screen, "one\nred")
        await asks_again(screen, "no-end\n[exit code 3]")
        screen.send("/show\r")
        await asks_again(screen, "I ran the tool bash" if is_told else "No messages yet")


async def test_a_shell_command_outside_the_sandbox(world: World) -> None:
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(world.project)], check=True)
    world.script([{"text": "an answer"}])
    async with talking(world) as screen:
        screen.send("!echo made >.git/hooks/x\r")
        await asks_again(screen, "yarrow: Type !!!COMMAND to run it outside the sandbox.")
        screen.send("!!!echo made >.git/hooks/x; cat .git/hooks/x\r")
        await asks_again(screen, "\nmade")
        screen.send("/show\r")
        await asks_again(screen, "I ran the tool bash")
    assert (world.project / ".git/hooks/x").read_text() == "made\n"


async def test_long_output_of_a_shell_command_is_complete_with_its_exit_code(world: World) -> None:
    world.script([{"text": "an answer"}])
    async with talking(world) as screen:
        screen.send("!seq 30000; exit 4\r")
        await asks_again(screen, "[exit code 4]")
        assert "\n".join(screen.whole).count("29999") == 1


async def test_ctrl_c_ends_a_shell_command_and_the_conversation_continues(world: World) -> None:
    world.script([{"text": "an answer"}])
    async with talking(world) as screen:
        screen.send("!echo beg''un; sleep 60\r")
        await screen.until("\nbegun")
        screen.send("\x03")
        await asks_again(screen, "Interrupted. Changes made so far")
        screen.send("go\r")
        await asks_again(screen, "an answer")


async def test_the_reason_of_the_provider_is_reported_once(world: World) -> None:
    async with OllamaServer([said_by_ollama("first"), said_by_ollama("second")]) as server:
        server.pages["/v1/models"] = page({"data": [{"id": "m"}]})
        world.environment["OLLAMA_HOST"] = server.root.removeprefix("http://")
        async with talking(world) as screen:
            for text in ("first", "second"):
                screen.send("go\r")
                await asks_again(screen, text)
            assert screen.text.count("using ollama/m") == 1


async def test_a_termination_signal_ends_run_and_conversation(world: World) -> None:
    going = Reply([chunk({"role": "assistant", "content": "a beginning\n"}), asyncio.Event()])
    async with ChatServer([going]) as server:
        world.serve_by(server.root)
        async with talking(world) as screen:
            screen.send("go\r")
            await screen.until("a beginning")
            screen.process.send_signal(signal.SIGTERM)
            assert await screen.ended() == 130
            assert "aborted" in screen.text


async def test_lines_kept_during_a_question_are_shown_when_they_are_sent(world: World) -> None:
    call = {"name": "bash", "arguments": {"command": "true"}}
    said = ("one thing more", "and another \\", "on two lines")
    turns = [[{"call": call}], [{"text": "answered"}], [{"text": "first"}], [{"text": "second"}]]
    world.script(*turns, permissions={"rules": {"bash": "ask"}})
    async with talking(world) as screen:
        screen.send("go\r")
        await screen.until("Answer:")
        for line in said:
            screen.send(f"{line}\r")
            await screen.until(f"queued until this run ends: {line}")
        await asyncio.sleep(QUIET_SECONDS + 0.1)
        screen.send("no\r")
        await asks_again(screen, "second")
        shown = screen.text.partition("answered")[2].split("\n")
        assert [row.rstrip() for row in shown if row.strip()] == [
            "> one thing more",
            "first",
            "> and another \\",
            "on two lines",
            "second",
            ">",
        ]
