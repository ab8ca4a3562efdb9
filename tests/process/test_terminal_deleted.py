"""A session that is deleted elsewhere while the terminal UI has it open: that is said, and what follows is drawn."""

import asyncio
import re

import pytest

from doubles.chat_server import DONE, ChatServer, Reply, chunk, finish, says
from doubles.screen import Screen
from doubles.serving import served
from doubles.world import World

SAID = "This session was deleted elsewhere"


async def delete(world: World, *where: str) -> None:
    assert (await world.run("sessions", "delete", world.session_files()[0].stem, *where)).code == 0


@pytest.mark.parametrize("attached", [False, True], ids=["here", "attached"])
async def test_a_text_to_a_deleted_session_starts_another(world: World, attached: bool) -> None:
    socket = world.home.parent / "s.sock"
    flags = ("--attach", f"unix:{socket}") if attached else ()
    held = Reply([chunk({"role": "assistant", "content": "half of it"}), asyncio.Event(), finish("stop"), DONE])
    async with ChatServer([says("the first"), held, says("the third")]) as server:
        world.serve_by(server.root)
        async with served(world, socket), Screen(world, *flags, size=(140, 30)) as screen:
            await screen.ready()
            screen.send("/dry-run on\r")
            await screen.until("Dry run: on")
            screen.send("first\r")
            await screen.until("the first")
            await delete(world)
            screen.send("/name Gone\r")
            await screen.until(f"{SAID}. Send a text or run /new")
            screen.send("\x03second\r")
            await screen.until("half of it")
            assert SAID in screen.text
            assert re.search("Thinking.*dry run", screen.text)
            screen.send("\x1b")
            await screen.until("Run interrupted")
            screen.send("third\r")
            await screen.until("the third")
            said = [one["content"] for one in server.prompts[-1]["messages"] if one["role"] == "user"]
            assert said == ["second\n\nthird"]
            screen.send("\x1b[A\x1b[A")
            await screen.until(lambda seen: seen.editor == ["second"])
    assert len(world.session_files()) == 1


async def test_deleting_a_session_is_reported_to_watchers(world: World) -> None:
    socket = world.home.parent / "s.sock"
    flags = ("--attach", f"unix:{socket}")
    async with ChatServer([says("the first"), says("the second")]) as server:
        world.serve_by(server.root)
        async with served(world, socket), Screen(world, *flags) as screen:
            await screen.ready()
            screen.send("first\r")
            await screen.until("the first")
            await delete(world, *flags)
            await screen.until("the session was deleted")
            screen.send("!echo by hand\r")
            await screen.until(f"{SAID}. Your text")
            await screen.until(lambda seen: re.search(r"(?s)!echo by hand.*by hand\s.*ready", seen.text))
            screen.send("second\r")
            await screen.until("the second")


async def test_line_by_line_the_deletion_is_reported(world: World) -> None:
    async with ChatServer([says("the first"), says("the second")]) as server:
        world.serve_by(server.root)
        async with Screen(world, "--plain", size=(140, 24)) as screen:
            await screen.until(">")
            screen.send("/dry-run on\rfirst\r")
            await screen.until("the first")
            await delete(world)
            screen.send("/name Gone\r")
            await screen.until(f"{SAID}. Send a text or run /new")
            screen.send("second\r")
            await screen.until("the second")
            assert f"{SAID}. Your text starts a new session; the model does not know" in screen.text
    assert "first" not in str(server.prompts[-1]["messages"])
    (left,) = world.session_files()
    assert '"dryRun":true' in left.read_text()
