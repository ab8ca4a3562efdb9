"""`yarrow sandbox quarantine`: nothing that the sandbox took is out of the user's reach."""

import json
import os
from pathlib import Path

import pytest

from doubles.world import World
from yarrow.policy.sandbox.quarantine import Quarantine

COMMAND = ("sandbox", "quarantine")


def take(world: World, name: str, content: str = "mine\n") -> Path:
    path = Path(os.path.realpath(world.project)) / name
    path.write_text(content)
    directory = os.open(path.parent, os.O_RDONLY)
    store = Path(os.path.realpath(world.home)) / ".yarrow/sandbox/quarantine"
    assert Quarantine(store, "s1").take(directory, name, path, reason="git would run it") is not None
    os.close(directory)
    assert not path.exists()
    return path


async def test_it_is_listed_restored_and_emptied(world: World) -> None:
    assert (await world.run(*COMMAND)).out == "Quarantine is empty.\n"
    assert (await world.run(*COMMAND, "list", "--json")).out == ""
    assert (await world.run(*COMMAND, "empty")).out == "Quarantine is empty.\n"
    one, odd = take(world, "one"), take(world, "odd\x1b]0;x\x07\n")
    listed = await world.run(*COMMAND, "list")
    assert "   1  " in listed.out
    assert f"{one} (5 bytes)\n      git would run it\n" in listed.out
    assert "\x1b" not in listed.out
    assert len(listed.out.splitlines()) == 4
    first, second = (await world.run(*COMMAND, "list", "--json")).lines
    assert (first["number"], first["path"], first["sessionId"], first["size"]) == (1, str(one), "s1", 5)
    assert second["path"] == str(odd)
    restored = await world.run(*COMMAND, "restore", "1")
    assert (restored.code, restored.out) == (0, f"Restored {one}\n")
    assert one.read_text() == "mine\n"
    asked = await world.run(*COMMAND, "empty")
    assert (asked.code, asked.err) == (2, "yarrow: deleting the quarantine needs a confirmation: add --yes\n")
    assert (await world.run(*COMMAND, "empty", "--yes", "--json")).lines == [{"deleted": 1}]
    assert (await world.run(*COMMAND, "list")).out == "Quarantine is empty.\n"


@pytest.mark.parametrize(
    "words", [["restore"], ["restore", "x"], ["restore", "9"], ["restore", "1", "2"], ["empty", "x"]]
)
async def test_what_is_wrong_is_said_and_nothing_changes(world: World, words: list[str]) -> None:
    take(world, "one")
    assert (await world.run(*COMMAND, *words)).code == 2
    assert json.loads((await world.run(*COMMAND, "list", "--json")).out)["number"] == 1


async def test_nothing_is_written_over(world: World) -> None:
    path = take(world, "one")
    path.write_text("newer\n")
    refused = await world.run(*COMMAND, "restore", "1")
    assert refused.code == 2
    assert "exists: move it away" in refused.err
    assert path.read_text() == "newer\n"
