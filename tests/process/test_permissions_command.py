"""`yarrow permissions`: what the user allowed always is listed, and revoked by its number."""

import json
from typing import Any

import pytest

from doubles.world import World

COMMAND = "permissions"
NAMED = ("tool", "subject", "cwd", "uncontained")


def call(subject: str, **more: Any) -> dict[str, Any]:
    return {"tool": "bash", "subject": subject, "cwd": "/p", "uncontained": False} | more


def stored(world: World) -> Any:
    return json.loads((world.home / ".yarrow/config.json").read_text())["permissions"].get("always")


async def test_allowed_calls_are_listed_and_revoked(world: World) -> None:
    make, odd = call("make test", uncontained=True), call("odd\x1b]0;x\x07\nnext " + "y" * 500)
    world.configure({"permissions": {"always": [odd, make], "rules": {"bash": "ask"}}})
    listed = await world.run(COMMAND)
    first, second, third = listed.out.splitlines()
    assert (listed.code, first) == (0, "Always allowed (in ~/.yarrow/config.json):")
    assert second == "   1  bash: make test (in /p, outside the sandbox)"
    assert third.startswith("   2  bash: odd")
    assert "\x1b" not in third
    assert len(third) < 300
    assert (await world.run(COMMAND, "list")).out == listed.out
    rows = (await world.run(COMMAND, "list", "--json")).lines
    assert [row["number"] for row in rows] == [1, 2]
    assert [{name: row[name] for name in NAMED} for row in rows] == [make, odd]
    assert {row["file"] for row in rows} == {str(world.home / ".yarrow/config.json")}
    revoked = await world.run(COMMAND, "revoke", "1")
    assert (revoked.code, revoked.out) == (0, "Revoked bash: make test (in /p, outside the sandbox)\n")
    assert revoked.err == (
        "yarrow: if another Yarrow is running, it still allows the call until it restarts; "
        "to revoke it there now, type /permissions revoke N\n"
    )
    assert stored(world) == [odd]
    assert (await world.run(COMMAND, "revoke", "1", "--json")).lines == [{"revoked": odd}]
    assert stored(world) == []
    assert (await world.run(COMMAND)).out == 'No allowed calls. Answer a question with "always" to add one.\n'
    assert (await world.run(COMMAND, "--json")).out == ""


@pytest.mark.parametrize(
    "words",
    [
        ["revoke"],
        ["revoke", "0"],
        ["revoke", "2"],
        ["revoke", "-1"],
        ["revoke", "x"],
        ["revoke", "²"],
        ["revoke", "9" * 5_000],
        ["revoke", "1", "1"],
        ["list", "1"],
        ["grant"],
    ],
)
async def test_invalid_arguments_are_reported_and_nothing_changes(world: World, words: list[str]) -> None:
    world.configure({"permissions": {"always": [call("make")]}})
    ended = await world.run(COMMAND, *words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("yarrow: ")
    assert len(ended.err) < 500
    assert stored(world) == [call("make")]


async def test_a_symlinked_settings_file_stays_a_symlink(world: World) -> None:
    world.configure({"permissions": {"always": [call("make")]}})
    path = world.home / ".yarrow/config.json"
    real = world.home / "elsewhere"
    path.rename(real)
    path.symlink_to(real)
    assert (await world.run(COMMAND, "revoke", "1")).code == 0
    assert path.is_symlink()
    assert stored(world) == []


async def test_a_revoked_call_is_asked_about_again(world: World) -> None:
    turns = [{"call": {"name": "bash", "arguments": {"command": "echo ran"}}}], [{"text": "done"}]
    always = [call("echo ran", cwd=str(world.project.resolve()))]
    world.script(*turns, permissions={"always": always, "rules": {"bash": "ask"}})
    assert (await world.run("go")).code == 0
    assert (await world.run(COMMAND, "revoke", "1")).code == 0
    assert (await world.run("go")).code == 5
