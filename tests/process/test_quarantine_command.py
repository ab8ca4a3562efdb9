"""`yarrow sandbox quarantine`: nothing that the sandbox took is out of the user's reach."""

import json
import os
import sys
from pathlib import Path

import pytest

from doubles.screen import Screen
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


async def test_entries_are_listed_restored_and_deleted(world: World) -> None:
    assert (await world.run(*COMMAND)).out == "The quarantine is empty.\n"
    assert (await world.run(*COMMAND, "list", "--json")).out == ""
    assert (await world.run(*COMMAND, "empty")).out == "The quarantine is empty.\n"
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
    assert (asked.code, asked.err) == (
        2,
        "yarrow: cannot ask for confirmation without a terminal: add --yes to delete the quarantine\n",
    )
    assert (await world.run(*COMMAND, "empty", "--yes", "--json")).lines == [{"deleted": 1}]
    assert (await world.run(*COMMAND, "list")).out == "The quarantine is empty.\n"


@pytest.mark.parametrize(
    ("typed", "is_deleted"),
    [
        ("y\r", True),
        ("YES\r", True),
        (" yes \r", True),
        ("\r", False),
        ("n\r", False),
        ("no\r", False),
        ("yess\r", False),
        ("always\r", False),
        ("y\x7fn\r", False),
        ("\x04", False),
        ("y\x04", False),
    ],
)
async def test_deleting_asks_at_a_terminal(world: World, typed: str, *, is_deleted: bool) -> None:
    take(world, "one")
    take(world, "two")
    async with Screen(world, *COMMAND, "empty") as screen:
        await screen.until("Delete 2 entries permanently? [y/N]")
        screen.send(typed)
        if typed == "y\x04":
            # The first one passes on what is written, and the next one ends the input.
            screen.send("\x04")
        assert await screen.ended() == 0
        said = "Deleted 2 entries." if is_deleted else "yarrow: nothing deleted"
        assert screen.text.rstrip().split("\n")[1:] == [said]
        assert screen.left_behind() == []
    left = (await world.run(*COMMAND, "list", "--json")).lines
    assert len(left) == (0 if is_deleted else 2)


async def test_input_typed_before_the_question_deletes_nothing(world: World) -> None:
    take(world, "one")
    command = ("sh", "-c", f"read go; exec {sys.executable} -m yarrow sandbox quarantine empty")
    async with Screen(world, command=command) as screen:
        screen.send("go\ry\ryes\r")
        await screen.until("[y/N]")
        screen.send("\r")
        assert await screen.ended() == 0
        assert "nothing deleted" in screen.text
    assert len((await world.run(*COMMAND, "list", "--json")).lines) == 1


async def test_an_interrupted_question_deletes_nothing(world: World) -> None:
    take(world, "one")
    async with Screen(world, *COMMAND, "empty") as screen:
        await screen.until("[y/N]")
        screen.send("\x03")
        assert await screen.ended() == 130
        assert "Traceback" not in screen.text
    assert len((await world.run(*COMMAND, "list", "--json")).lines) == 1


@pytest.mark.parametrize(
    "words", [["restore"], ["restore", "x"], ["restore", "9"], ["restore", "1", "2"], ["empty", "x"]]
)
async def test_invalid_arguments_are_reported_and_nothing_changes(world: World, words: list[str]) -> None:
    take(world, "one")
    assert (await world.run(*COMMAND, *words)).code == 2
    assert json.loads((await world.run(*COMMAND, "list", "--json")).out)["number"] == 1


async def test_restoring_swaps_the_current_content(world: World) -> None:
    path = take(world, "one")
    path.write_text("newer\n")
    restored = await world.run(*COMMAND, "restore", "1")
    assert (restored.code, restored.out) == (0, f"Restored {path}; its previous content is now entry 2\n")
    assert path.read_text() == "mine\n"
    (entry,) = (await world.run(*COMMAND, "list", "--json")).lines
    assert (entry["number"], entry["path"], entry["reason"]) == (2, str(path), "entry 1 was restored")
    again = (await world.run(*COMMAND, "restore", "2", "--json")).lines
    assert [(one["restored"], one["replaced"]) for one in again] == [(str(path), 3)]
    assert path.read_text() == "newer\n"


async def test_without_a_subcommand_the_quarantine_is_listed(world: World) -> None:
    told = await world.run("sandbox")
    assert (told.code, told.out, told.err) == (0, "The quarantine is empty.\n", "")
    wrong = await world.run("sandbox", "empty")
    usage = "usage: yarrow sandbox [quarantine list|restore N|empty [--yes]]"
    assert (wrong.code, wrong.err) == (2, f"yarrow: unexpected arguments 'empty'; {usage}\n")


async def test_text_mode_reports_failed_commands_and_quarantined_files(world: World) -> None:
    why = "it is read by git or Yarrow to learn what to run"
    commands = {
        "false": "exit code 1",
        "echo hi; echo 'no such thing' >&2; exit 3": "exit code 3: no such thing",
        "echo '[exit code 7]'; exit 4": "exit code 4: [exit code 7]",
        "echo begun; sleep 9": "timed out after 0.2 s and was killed: begun",
        "mkdir .yarrow && echo '{}' > .yarrow/config.json": (
            f".yarrow (1): quarantined because {why}; to restore an entry, run `yarrow sandbox quarantine restore N`"
        ),
    }
    world.script(
        *([{"call": {"name": "bash", "arguments": {"command": one, **({"timeout": 0.2} if "sleep" in one else {})}}}]
          for one in commands),
        [{"text": "done"}],
    )  # fmt: skip
    ended = await world.run("go")
    assert ended.out == "done\n"
    told = [line for line in ended.err.splitlines() if line.startswith("< ")]
    assert told == [f"< bash: {text}" for text in commands.values()]
