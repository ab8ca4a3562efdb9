"""One-shot commands behind `-r` and `-c` work in the directory of the resumed session, wherever they are started."""

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from doubles.serving import served
from doubles.world import World
from yarrow.client.session_slash_commands import COMMANDS
from yarrow.session.session_file_reader import load_session

MAKING = {
    "branch": "",
    "fork": "",
    "rebase": " 0",
    "import": " talk.jsonl",
    "merge": " {other}",
}
"""Commands that make a session, and what follows their name."""
OTHERS = {
    "tree": "",
    "resume": " {other}",
    "stats": "",
    "show": "",
    "name": " mine",
    "export": " made.jsonl",
    "compact": "",
}


def test_every_slash_command_is_tested() -> None:
    assert {*MAKING, *OTHERS} == {*COMMANDS}


@contextlib.asynccontextmanager
async def reached(world: World, how: str) -> AsyncGenerator[list[str]]:
    """Give the flags that reach the service in a way."""
    if how == "in process":
        yield []
        return
    socket = world.home / "run" / "yarrow.sock"
    async with served(world, socket):
        yield ["--attach", f"unix:{socket}"]


@pytest.fixture
async def elsewhere(world: World) -> Path:
    """Another directory, with a session of its own; the project has two."""
    there = world.home.parent / "elsewhere"
    there.mkdir()
    world.script(*[[{"text": "Hello."}]] * 20)
    for cwd in (there, world.project, world.project):
        assert (await world.run("hi", cwd=cwd)).code == 0
    return there


def cwds(world: World) -> dict[str, str]:
    """The working directory of each session."""
    return {path.stem: load_session(path).header.cwd for path in world.session_files()}


@pytest.mark.parametrize("how", ["in process", "attached"])
async def test_case_rm_01_commands_after_r_use_the_sessions_directory(world: World, elsewhere: Path, how: str) -> None:
    project = str(world.project)
    before = cwds(world)
    one, other = sorted(name for name, cwd in before.items() if cwd == project)
    far = next(name for name, cwd in before.items() if cwd == str(elsewhere))
    assert (await world.run("-r", one, "--export", str(world.project / "talk.jsonl"), cwd=elsewhere)).code == 0
    async with reached(world, how) as flags:
        for name, words in (MAKING | OTHERS).items():
            known = cwds(world)
            line = f"/{name}{words.format(other=other)}"
            ended = await world.run(*flags, "-r", one[-8:], line, cwd=elsewhere)
            made = {session: cwd for session, cwd in cwds(world).items() if session not in known}
            assert set(made.values()) == ({project} if name in MAKING else set()), (line, ended)
            if name == "compact":
                assert "nothing to compact yet" in ended.err
                continue
            assert ended.code == 0, (line, ended)
            if name == "tree":
                assert one[-8:] in ended.out
                assert far[-8:] not in ended.out
        assert (await world.run(*flags, "-c", "/tree", cwd=elsewhere)).out.count(far[-8:]) == 1
        listed = await world.run(*flags, "-r", one, "sessions", "tree", cwd=elsewhere)
    assert listed.code != 0 or one[-8:] in listed.out, listed
    assert (world.project / "made.jsonl").exists()
    assert "/" not in cwds(world).values()


async def test_a_template_after_r_is_that_of_the_session(world: World, elsewhere: Path) -> None:
    (world.project / ".git").mkdir()
    prompts = world.project / ".yarrow" / "prompts"
    prompts.mkdir(parents=True)
    (prompts / "greet.md").write_text("Say hello to $1.")
    one = next(name for name, cwd in cwds(world).items() if cwd == str(world.project))
    ended = await world.run("-r", one, "/greet Ada", cwd=elsewhere)
    assert (ended.code, ended.out) == (0, "Hello.\n"), ended.err
    ended = await world.run("-r", one, "/nothing-such", cwd=elsewhere)
    assert "/greet" in ended.err
