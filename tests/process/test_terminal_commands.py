"""Commands on the terminal: sessions made of sessions, the views that choose among them, and what a run blocks."""

import asyncio
import re

import pytest

from doubles.chat_server import DONE, ChatServer, Reply, chunk, finish, says
from doubles.opened import opened
from doubles.screen import Screen
from doubles.world import World


def gated(text: str, gate: asyncio.Event, rest: str = "") -> Reply:
    """An answer that stands still at a gate."""
    return Reply([chunk({"role": "assistant", "content": text}), gate, chunk({"content": rest}), finish("stop"), DONE])


async def in_view(screen: Screen, line: str, foot: str) -> None:
    screen.send(f"{line}\r")
    await screen.until(lambda _: screen.emulator.is_alternate and foot in screen.text)


async def left(screen: Screen) -> None:
    await screen.until(lambda _: not screen.emulator.is_alternate)


async def test_the_tree_is_filtered_and_its_keys_work(world: World) -> None:
    world.script([{"text": "first answer"}], [{"text": "second answer"}])
    async with Screen(world, size=(100, 40)) as screen:
        await screen.ready()
        screen.send("apples\r")
        await screen.until("first answer")
        await screen.until("ready")
        screen.send("/name Orchard\r")
        await screen.until("Named this session Orchard")
        screen.send("/new\r")
        await screen.until("Started a new session")
        screen.send("pears\r")
        await screen.until(lambda _: screen.text.count("answer") == 2)
        await screen.until("ready")
        for key, said in {"\r": "Resumed", "f": "Forked to", "b": "Branched to"}.items():
            await in_view(screen, "/tree", "R rebase")
            screen.send("/Orch")
            await screen.until(lambda _: "Orchard" in screen.text and "pears" not in screen.text)
            # The first Enter takes the filter's choice; letters act when the filter is not being typed.
            screen.send("\r" if key == "\r" else "\x1b")
            if key != "\r":
                await screen.until("pears")
                screen.send("\x1b[H")
                await at_row(screen, "Orchard")
                screen.send(key)
            await left(screen)
            await screen.until(f"{said} ")
        await in_view(screen, "/tree", "R rebase")
        screen.send("r")
        await screen.until("Choose the messages to keep")
        screen.send("\x1b[H")
        screen.send(" ")
        await screen.until("[ ]")
        screen.send("a")
        screen.send("a")
        await screen.until(lambda _: "[ ]" not in screen.text)
        screen.send("\r")
        await left(screen)
        await screen.until("Rebased to ")


async def at_row(screen: Screen, text: str) -> None:
    """Move down to the row that holds a text."""
    row = next(number for number, row in enumerate(screen.rows) if text in row) - 1
    screen.send("\x1b[B" * row)


async def test_rebase_selects_calls_and_results_together(world: World) -> None:
    world.script([{"call": {"name": "ls", "arguments": {}}}], [{"text": "the answer"}])
    async with Screen(world) as screen:
        await screen.ready()
        screen.send("look\r")
        await screen.until("the answer")
        await screen.until("ready")
        await in_view(screen, "/rebase", "Space toggle")
        assert screen.text.count("[x]") == 4
        screen.send("\x1b[A ")
        await screen.until(lambda _: screen.text.count("[ ]") == 2)
        screen.send("\r")
        await left(screen)
        await screen.until("Rebased to")
        screen.send("/show\r")
        await screen.until("No tool calls yet")


async def test_merge_compact_resume_and_stats(world: World) -> None:
    turns = [[{"text": f"answer {number}"}] for number in range(6)]
    world.script(*turns, compaction={"keepRecentTokens": 1})
    ended = await world.run("-p", "other work")
    assert ended.code == 0
    other = world.session_files()[0].stem
    async with Screen(world, size=(100, 40)) as screen:
        await screen.ready()
        screen.send("hello\r")
        await screen.until("answer 0")
        await screen.until("ready")
        await in_view(screen, "/resume", "R rebase")
        screen.send("\x03")
        await left(screen)
        screen.send("/merge \t")
        await screen.until(lambda _: re.search(r"/merge [0-9a-f]{8}|other work", screen.text))
        screen.send("\x03")
        screen.send(f"/merge {other.rpartition('_')[2][-8:]}\r")
        await screen.until(lambda _: re.search(r"Merged|no session", screen.text))
        screen.send("/compact\r")
        await screen.until(lambda _: re.search(r"Compacted the context|error: ", screen.text))
        screen.send("/stats\r")
        await screen.until("tokens")


async def two_sessions(world: World, server: ChatServer) -> None:
    """Leave one session behind, in which an answer was said."""
    world.serve_by(server.root)
    ended = await world.run("-p", "other work")
    assert ended.code == 0


async def test_merge_offers_a_list_of_sessions_and_shows_its_duration(world: World) -> None:
    gate = asyncio.Event()
    async with ChatServer([says("of the other"), says("mine"), gated("both fit", gate)]) as server:
        await two_sessions(world, server)
        async with Screen(world, size=(100, 30)) as screen:
            await screen.ready()
            screen.send("/merge\r")
            await in_picker(screen)
            screen.send("\x1b")
            await left(screen)
            screen.send("my work\r")
            await screen.until("mine")
            await screen.until("ready")
            screen.send("/merge\r")
            await in_picker(screen)
            assert "my work" not in screen.text
            screen.send("\r")
            await left(screen)
            await screen.until(lambda _: re.search(r"Merging… [1-9]s", screen.text))
            screen.send("/merge 12345678\r")
            await screen.until("Still merging. Press Esc to cancel it first.")
            screen.send("\x03")
            gate.set()
            await screen.until(lambda _: re.search(r"Merged \w{8}; continuing in", screen.text))
            await screen.until("ready")


async def in_picker(screen: Screen) -> None:
    await screen.until(lambda _: screen.emulator.is_alternate and "Merge which session into this one?" in screen.text)
    assert "other work" in screen.text


async def test_escape_cancels_a_merge(world: World) -> None:
    async with ChatServer([says("of the other"), says("mine"), gated("both", asyncio.Event())]) as server:
        await two_sessions(world, server)
        async with Screen(world, size=(100, 30)) as screen:
            await screen.ready()
            screen.send("my work\r")
            await screen.until("mine")
            await screen.until("ready")
            screen.send("/merge\r")
            await in_picker(screen)
            screen.send("\r")
            await screen.until("Merging")
            await screen.until(lambda _: len(server.prompts) == 3)
            screen.send("\x1b")
            await screen.until("Merge cancelled; nothing was changed")
            await screen.until("ready")
            assert len(world.session_files()) == 2


async def test_a_merge_without_another_session_is_reported(world: World) -> None:
    world.script([{"text": "ok"}])
    async with Screen(world) as screen:
        await screen.ready()
        screen.send("/merge\r")
        await screen.until("No other session to merge")


async def test_templates_and_skills(world: World) -> None:
    templates = world.home / ".yarrow" / "prompts"
    skill = world.home / ".yarrow" / "skills" / "tidy"
    world.script(
        [{"expect": {"contains": "Review it well"}}, {"text": "reviewed"}],
        *([{"expect": {"contains": "Tidy up."}}, {"text": answer}] for answer in ("tidied", "tidied again")),
    )
    templates.mkdir()
    skill.mkdir(parents=True)
    (templates / "review.md").write_text("Review it well: $ARGUMENTS")
    (skill / "SKILL.md").write_text("---\nname: tidy\ndescription: Tidies things.\n---\nTidy up.\n")
    async with Screen(world, size=(100, 60)) as screen:
        await screen.ready()
        screen.send("/help\r")
        await screen.until(lambda _: "/review" in screen.text and "/skill:tidy" in screen.text)
        screen.send("/review this\r")
        await screen.until("reviewed")
        # The typed text is shown, not its expansion.
        assert "untrusted_input" not in screen.text
        screen.send("/skill:tidy\r")
        await screen.until("tidied")
        screen.send("/tid\t")
        await screen.until(lambda _: screen.editor[:1] == ["/skill:tidy"])
        screen.send("\x03/tidy\r")
        await screen.until("tidied again")
        screen.send("/skill:tidi now\r")
        await screen.until("Unknown skill tidi. Did you mean /skill:tidy?")
        assert screen.editor == ["/skill:tidi now"]


@pytest.mark.parametrize("line", ["/compact", "/branch", "/rebase 0", "/model other"])
async def test_a_command_rejected_during_a_run_stays_in_the_editor(world: World, line: str) -> None:
    gate = asyncio.Event()
    async with opened(world, says("before"), gated("working", gate, " done")) as (screen, _):
        screen.send("one\r")
        await screen.until("before")
        await screen.until("ready")
        screen.send("go\r")
        await screen.until("working")
        screen.send(f"{line}\r")
        await screen.until(
            lambda _: re.search(
                r"error: |continuing in|Branched to|Forked to|Rebased to|Imported as|Resumed|Model: ", screen.text
            )
        )
        allowed = "error: " not in screen.text
        assert allowed or screen.editor == [line]
        screen.send("\x03/stats\r")
        await screen.until("tokens")
        gate.set()
        await screen.until("ready")


async def test_switching_sessions_does_not_stop_a_run(world: World) -> None:
    gate = asyncio.Event()
    async with opened(world, gated("working", gate, " and done"), size=(100, 40)) as (screen, _):
        screen.send("go\r")
        await screen.until("working")
        screen.send("/new\r")
        await screen.until("Started a new session")
        await screen.until("ready")
        await in_view(screen, "/tree", "R rebase")
        await at_row(screen, " go")
        screen.send("\r")
        await left(screen)
        await screen.until("Resumed ")
        await screen.until("Thinking")
        gate.set()
        await screen.until("working and done")
        await screen.until("ready")
