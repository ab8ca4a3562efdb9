"""Lines that are rejected, or that are not commands."""

import asyncio
import re

from doubles.chat_server import DONE, ChatServer, Reply, chunk, finish, says
from doubles.screen import Screen
from doubles.world import World


async def test_typing_replaces_a_rejected_command(world: World) -> None:
    world.script([{"text": "an answer"}])
    async with Screen(world, size=(120, 24)) as screen:
        await screen.ready()
        for line, why in {
            "/thinking hgh": "/thinking must be one of: off, .*got 'hgh'",
            "/permissions foo": "got 'foo'",
            "/resume zzzz": "/tree lists them",
        }.items():
            screen.send(f"{line}\r")
            await screen.until(lambda seen, why=why: re.search(why, seen.text))
            await screen.until(lambda seen, line=line: seen.editor == [line])
        screen.send("x")
        await screen.until(lambda seen: seen.editor == ["x"])
        for word, keys, after in (("yyyy", "\x1b[D\x1b[Cz", ["/resume yyyyz"]), ("zzz9", "\x7f", [])):
            screen.send(f"\x15/resume {word}\r")
            await screen.until(f"no session matches '{word}'")
            await screen.until(lambda seen, word=word: seen.editor == [f"/resume {word}"])
            screen.send(keys)
            await screen.until(lambda seen, after=after: seen.editor in (after, after or [""]))
        screen.send("\x1b[A")
        await screen.until(lambda seen: seen.editor == ["/resume zzz9"])


async def test_a_space_before_the_slash_sends_it_unchanged(world: World) -> None:
    async with ChatServer([says("the first"), says("the second")]) as server:
        world.serve_by(server.root)
        async with Screen(world, size=(120, 24)) as screen:
            await screen.ready()
            screen.send("/nope it\r")
            await screen.until("tart with a space to send it as text.")
            screen.send(" /name it\r")
            await screen.until("the first")
            assert server.prompts[-1]["messages"][-1]["content"] == " /name it"
        async with Screen(world, "--plain", size=(120, 24)) as screen:
            await screen.until(">")
            screen.send("/nope it\r")
            await screen.until("start with a space to send it as text")
            screen.send(" /quit it\r")
            await screen.until("the second")
            assert server.prompts[-1]["messages"][-1]["content"] == " /quit it"


async def test_on_a_small_screen_the_help_starts_with_the_keys(world: World) -> None:
    world.script([{"text": "an answer"}])
    async with Screen(world) as screen:
        await screen.ready()
        screen.send("\x1bOP")
        await screen.until("Keys and commands")
        assert "send; while the agent runs" in screen.text
        screen.send("\x1b")
        await screen.ready()


async def test_an_empty_selection_is_reported(world: World) -> None:
    world.script([{"text": "an answer"}])
    async with Screen(world) as screen:
        await screen.ready()
        screen.send("hi\r")
        await screen.until("an answer")
        screen.send("/rebase\r")
        await screen.until("Choose the messages to keep")
        screen.send("a\r")
        await screen.until("Nothing selected. Press Space or A.")
        screen.send("a\r")
        await screen.until("Rebased to ")


async def test_undelivered_texts_of_an_aborted_run_return_to_the_editor(world: World) -> None:
    held = Reply([chunk({"role": "assistant", "content": "half of it"}), asyncio.Event(), finish("stop"), DONE])
    async with ChatServer([held]) as server:
        world.serve_by(server.root)
        async with Screen(world) as screen:
            await screen.ready()
            screen.send("go\r")
            await screen.until("half of it")
            screen.send("steer this\r")
            await screen.until("1 message to send after this step")
            screen.send("then that\x1b\r")
            await screen.until("1 after this run")
            screen.send("\x1b")
            await screen.until("Not sent: then that")
            await screen.until(lambda seen: [row.strip() for row in seen.editor] == ["steer this", "then that"])


async def test_the_start_shows_the_directory_and_a_new_session_is_separated(world: World) -> None:
    world.script([{"text": "an answer"}])
    async with Screen(world, size=(160, 24)) as screen:
        await screen.ready()
        where = re.compile(rf"^Yarrow [\w.]+ · {re.escape(str(world.project))} · scripted$")
        await screen.until(lambda seen: where.match(seen.rows[0]))
        screen.send("hi\r")
        await screen.until("an answer")
        screen.send("/new\r")
        await screen.until("Started a new session")
        assert screen.rows[screen.rows.index("Started a new session") - 1] == ""


async def test_a_mentioned_name_with_blanks_is_quoted(world: World) -> None:
    world.script([{"text": "an answer"}])
    (world.project / "my file.txt").write_text("x")
    async with Screen(world) as screen:
        await screen.ready()
        screen.send("read @my")
        await screen.until('"my file.txt"')
        screen.send("\t")
        await screen.until('read @"my file.txt"')
