"""Nothing that is typed across the moment of a permission question approves it, and no letter of it is lost."""

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from doubles.chat_server import DONE, ChatServer, Reply, chunk, finish, says
from doubles.places import PAUSE, to_the_question
from doubles.screen import Screen
from doubles.typist import MOVES, Typing, typing
from doubles.world import World
from yarrow.session.record import PermissionAnswered
from yarrow.session.session_file_reader import load_session

SENTENCES = int(os.environ.get("SENTENCES", "40"))
"""Typed in each way; `make soak` types more."""
TERMINALS = 20
"""Terminals at one time."""
CALL: dict[str, Any] = {
    "tool_calls": [{"index": 0, "id": "c1", "function": {"name": "bash", "arguments": '{"command": "touch made"}'}}]
}
END = "that is all"


def approvals(world: World) -> list[str]:
    """Evidence that something was allowed: a command that ran, an answer on disk, a rule that was written."""
    found = ["the command ran"] if (world.project / "made").exists() else []
    for path in world.session_files():
        answers = [
            stored.value for stored in load_session(path).records if isinstance(stored.value, PermissionAnswered)
        ]
        found += [f"answered {answer.answer} by {answer.by}" for answer in answers if answer.answer != "no"]
    return found + ["a rule was written"] * ("always" in (world.home / ".yarrow" / "config.json").read_text())


async def prompted(server: ChatServer) -> None:
    """Wait until the model was asked."""
    async with asyncio.timeout(20):
        while not server.prompts:
            await asyncio.sleep(0.01)


async def typed(screen: Screen, what: Typing, ask: asyncio.Event) -> None:
    """Type it all, and let the question come in between."""
    for number, stroke in enumerate(what.strokes):
        if number == what.asked_after:
            ask.set()
        if stroke.is_paste and screen.emulator.marks_pastes:
            screen.paste(stroke.text)
        else:
            screen.send(stroke.text)
        await asyncio.sleep(stroke.pause)


async def in_the_terminal_ui(world: World, what: Typing) -> list[str]:
    """Type it in the terminal UI; return what went wrong."""
    ask = asyncio.Event()
    async with ChatServer([Reply([ask, chunk(CALL), finish("tool_calls"), DONE]), says(END)]) as server:
        world.serve_by(server.root, permissions={"rules": {"bash": "ask"}})
        async with Screen(world, size=(120, 40)) as screen:
            await screen.ready()
            screen.send("go\r")
            await prompted(server)
            await typed(screen, what, ask)
            *sent, left = what.lines
            await screen.until(
                lambda _: "Run this command" in screen.text and screen.editor[:1] == [left.rstrip()][: len(left)]
            )
            if wrong := approvals(world):
                return wrong
            # The question can still be answered: with the selected entry, which is no.
            await to_the_question(screen)
            screen.send("\r")
            await screen.until(END)
            said = [message["content"] for message in server.prompts[-1]["messages"] if message["role"] == "user"]
            assert "\n".join(said[1:]).split() == " ".join(sent).split(), screen.picture()
    return approvals(world)


async def line_by_line(world: World, what: Typing) -> list[str]:
    """Type it in plain mode; return what went wrong."""
    ask = asyncio.Event()
    replies = [Reply([ask, chunk(CALL), finish("tool_calls"), DONE]), *[says(END)] * 9]
    async with ChatServer(replies) as server:
        world.serve_by(server.root, permissions={"rules": {"bash": "ask"}})
        async with Screen(world, "--plain", size=(120, 60)) as screen:
            await screen.until(lambda _: any(row.startswith(">") for row in screen.rows))
            screen.send("go\r")
            await prompted(server)
            await typed(screen, what, ask)
            await screen.until("Run this command")
            if wrong := approvals(world):
                return wrong
            # The rest of the last line ends here; the line after it is an answer.
            if what.lines[-1]:
                screen.send("\r")
            texts = [line.rstrip() for line in what.lines if line.strip()]
            await screen.until(lambda _: not Counter(texts) - kept(screen) and screen.text.rstrip().endswith("Answer:"))
            await asyncio.sleep(PAUSE)
            screen.send("no\r")
            await screen.until(END)
            await all_sent(server, ["go", *texts])
    return approvals(world)


def kept(screen: Screen) -> Counter[str]:
    """The lines of which it was said that they are no answers."""
    _, _, shown = screen.text.partition("not an answer")
    return Counter(row.rpartition("run ends: ")[2] for row in shown.split("\n"))


async def all_sent(server: ChatServer, texts: list[str]) -> None:
    """Wait until the model was sent these texts of the user, and no others."""
    sent = ""
    async with asyncio.timeout(20):
        while len(sent.split()) < len(" ".join(texts).split()):
            messages = server.prompts[-1]["messages"]
            sent = " ".join(message["content"] for message in messages if message["role"] == "user")
            await asyncio.sleep(0.01)
    assert sent.split() == " ".join(texts).split(), sent


WAYS = [(in_the_terminal_ui, MOVES), (line_by_line, ())]


async def wrong_with(way: Any, moves: Sequence[str], folder: Path) -> dict[int, list[str]]:
    """Type sentences at several terminals at one time; return what went wrong, by the seed."""
    free = asyncio.Semaphore(TERMINALS)

    async def one(seed: int) -> tuple[int, list[str]]:
        async with free:
            place = folder / str(seed)
            place.mkdir()
            try:
                return seed, await way(World(place), typing(seed, moves))
            except AssertionError as error:
                return seed, [str(error)]

    return {seed: wrong for seed, wrong in await asyncio.gather(*map(one, range(SENTENCES))) if wrong}


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("way", "moves"), WAYS, ids=["tui", "plain"])
async def test_typing_never_approves(tmp_path: Path, way: Any, moves: Sequence[str]) -> None:
    assert await wrong_with(way, moves, tmp_path) == {}
