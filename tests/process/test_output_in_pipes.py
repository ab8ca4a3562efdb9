"""Text that the command line writes into a pipe steers no terminal that a pager passes it to."""

import json
import re
import sys

import pytest

from doubles.chat_server import ChatServer, page
from doubles.screen import Screen
from doubles.world import World

EVIL = "before \x1b]52;c;cm0gLXJm\x07 \x1b[2J\x9b31m\x08\x7f after\n"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


async def test_case_rs_m5_control_characters_are_replaced_in_a_pipe(world: World) -> None:
    command = {"command": "printf 'x\\033]0;evil\\007\\n' >&2; exit 3"}
    world.script(
        [{"text": EVIL}, {"thinking": EVIL}, {"call": {"name": "bash", "arguments": command}}], [{"text": EVIL}]
    )
    said = await world.run("-p", f"go {EVIL}")
    assert "before" in said.out
    await world.run("sessions", "name", world.session_files()[0].stem, f"called {EVIL}")
    commands = (
        ["sessions", "list"],
        ["sessions", "all"],
        ["sessions", "tree"],
        ["sessions", "search", "before"],
        ["sessions", "show", world.session_files()[0].stem],
        ["sessions", "stats", world.session_files()[0].stem],
        ["-c", "-p", "/show"],
        ["-r", EVIL, "-p", "x"],
        [f"/no-such-{EVIL}"],
        ["--model", f"x/{EVIL}", "-p", "x"],
        ["sessions", EVIL],
        ["config"],
        ["doctor"],
    )
    ended = [said, *[await world.run(*words) for words in commands]]
    for one in ended:
        assert not CONTROLS.search(one.out), one.out
        assert not CONTROLS.search(one.err), one.err


async def test_case_rs_m5_errors_and_models_of_a_server_are_sanitized(world: World) -> None:
    async with ChatServer() as server:
        server.replies = [page({"error": {"message": EVIL, "code": EVIL}}, status) for status in (400, 401)]
        server.pages["/v1/models"] = page({"data": [{"id": "good"}, {"id": EVIL}, {"id": "a\u202eb"}]}, 200)
        world.serve_by(server.root)
        for words in (["-p", "x"], ["-p", "x"], ["--list-models"]):
            ended = await world.run(*words)
            assert not CONTROLS.search(ended.out + ended.err), ended
            assert "\u202e" not in ended.out


async def test_raw_keeps_the_answer_and_json_is_unchanged(world: World) -> None:
    world.script([{"text": EVIL}], [{"text": EVIL}], [{"text": EVIL}])
    assert (await world.run("--raw", "-p", "go")).out == EVIL
    (delta,) = (line for line in (await world.run("--json", "-p", "go")).lines if "textDelta" in json.dumps(line))
    assert EVIL in json.loads(json.dumps(delta))["textDelta"].values()


@pytest.mark.parametrize("words", [["--raw", "-p", "go"], ["--raw"], ["--raw", "--plain"], ["--raw", "go"]])
async def test_raw_is_rejected_on_a_terminal(world: World, words: list[str]) -> None:
    world.script([{"text": EVIL}])
    async with Screen(world, *words) as screen:
        assert await screen.ended() == 2
        assert screen.text.split("\n")[0] == "yarrow: --raw cannot write to a terminal: redirect it to a pipe or file"
        assert CONTROLS.sub("", screen.drawn.decode().replace("\r\n", "")) == screen.drawn.decode().replace("\r\n", "")
    assert world.session_files() == []


async def test_raw_into_a_file_prints_nothing_on_the_terminal(world: World) -> None:
    world.script([{"thinking": EVIL}, {"text": EVIL}])
    command = ("sh", "-c", f"{sys.executable} -m yarrow --raw -p go >kept; echo ended")
    async with Screen(world, command=command) as screen:
        await screen.until("ended")
        assert not CONTROLS.search(re.sub("\r\n|\x1b\\[2?2m", "", screen.drawn.decode()))
    assert (world.project / "kept").read_bytes() == EVIL.encode()


@pytest.mark.parametrize("words", [["--raw", "--json", "-p", "x"], ["--raw", "sessions"]])
async def test_raw_applies_only_to_text_output(world: World, words: list[str]) -> None:
    assert (await world.run(*words)).code == 2
