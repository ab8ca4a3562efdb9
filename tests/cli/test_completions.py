"""Completion in bash, zsh and fish: the shells themselves say what they would offer."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from doubles.world import World
from yarrow.cli.command_table import COMMAND_WORDS, COMMANDS, COMMANDS_WITH_WORDS, COMPLETION_SHELLS, FLAGS
from yarrow.cli.completions import SESSION_ID_WORDS, make_script
from yarrow.client.session_listing import SESSION_COMMANDS

SECONDS = 30.0
OFFERED = [
    ("yarrow --perm", ["--permissions"]),
    ("yarrow --permissions ", ["ask", "auto", "deny", "plan"]),
    ("yarrow se", ["serve", "sessions"]),
    ("yarrow sessions s", ["search", "show", "stats"]),
    ("yarrow config ", ["files", "json", "schema"]),
    ("yarrow --sandbox s", ["strict"]),
    ("yarrow explain @only", ["@only.txt"]),
    ("yarrow @on", ["@only.txt"]),
    ("yarrow -p hi -c @on", ["@only.txt"]),
    ("yarrow --export on", ["only.txt"]),
    ("yarrow --provider g", ["gemini"]),
    ("yarrow -m some:m", ["some:model"]),
]
BASH = """
eval "$(yarrow --completions bash)"
COMP_LINE=$1 COMP_POINT=${#1}
_yarrow
printf '%s\\n' "${COMPREPLY[@]}"
"""
FISH = 'yarrow --completions fish | source; complete -C "$argv[1]"'


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    (world.project / "only.txt").write_text("x")
    world.environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    world.script([{"text": "ok"}], model="some:model")
    return world


def lines(world: World, *command: str) -> list[str]:
    done = subprocess.run(
        command, cwd=world.project, env=world.environment, capture_output=True, text=True, timeout=SECONDS
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def shell(world: World, *command: str) -> list[str]:
    return sorted(" ".join(lines(world, *command)).split())


def in_bash(world: World, line: str) -> list[str]:
    # Bash ends a word at a colon and completes what follows it.
    kept = line[line.rindex(" ") + 1 : line.rfind(":") + 1]
    return [kept + word for word in shell(world, "bash", "--norc", "-c", BASH, "bash", line)]


def in_fish(world: World, line: str) -> list[str]:
    return shell(world, "fish", "--no-config", "-c", f"{FISH} | cut -f 1", line)


@pytest.mark.parametrize(("line", "offered"), OFFERED)
@pytest.mark.parametrize("offers", [in_bash, in_fish])
def test_completions_by_position(
    world: World, line: str, offered: list[str], offers: Callable[[World, str], list[str]]
) -> None:
    assert offers(world, line) == offered


@pytest.mark.parametrize("offers", [in_bash, in_fish])
async def test_a_saved_session_is_completed(world: World, offers: Callable[[World, str], list[str]]) -> None:
    assert (await world.run('"sessionId":"$(touch $HOME/run)"')).code == 0
    short = world.session_files()[0].stem[-8:]
    assert offers(world, f"yarrow -r {short[:3]}") == [short]
    assert offers(world, "yarrow sessions show ") == [short]
    assert not (world.home / "run").exists()


async def test_sessions_are_completed_with_their_titles(world: World) -> None:
    for text in ("one `touch run` $(touch run)", "two; touch run"):
        assert (await world.run(text)).code == 0
    rows = (await world.run("sessions")).out.splitlines()
    for line in ("yarrow -r ", "yarrow sessions delete "):
        assert lines(world, "bash", "--norc", "-c", BASH, "bash", line) == rows
        cycled = lines(world, "bash", "--norc", "-c", f"COMP_TYPE=37; {BASH}", "bash", line)
        assert cycled == [row[:8] for row in rows]
        assert lines(world, "fish", "--no-config", "-c", FISH, line) == [row.replace("  ", "\t", 1) for row in rows]
    assert not (world.project / "run").exists()


def test_fish_describes_each_value(world: World) -> None:
    told = lines(world, "fish", "--no-config", "-c", FISH, "yarrow --permissions ")
    assert [line.partition("\t")[0] for line in told] == ["auto", "ask", "deny", "plan"]
    assert told[-1] == "plan\tread-only tools only"


@pytest.mark.parametrize("offers", [in_bash, in_fish])
def test_a_model_named_like_a_command_is_not_completed(world: World, offers: Callable[[World, str], list[str]]) -> None:
    world.script([{"text": "ok"}], model="$(touch$IFS$HOME/run)")
    assert offers(world, "yarrow -m ") == []
    assert not (world.home / "run").exists()


@contextmanager
def zsh(world: World) -> Iterator[Callable[[str, str], None]]:
    """A zsh on a terminal; the function types a text and returns when another one is shown."""
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(world.project)
        os.execvpe("zsh", ["zsh", "-f", "-i"], world.environment | {"TERM": "dumb", "PS1": "$ "})

    def type_and_see(text: str, expected: str) -> None:
        os.write(terminal, text.encode())
        seen, deadline = "", time.monotonic() + SECONDS
        while expected not in seen:
            assert select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0], seen
            seen += os.read(terminal, 65536).decode("utf-8", "replace")

    try:
        yield type_and_see
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)


async def test_zsh_lists_sessions_with_their_titles(world: World) -> None:
    for text in ("one `touch run` %F{red}", "two; touch run"):
        assert (await world.run(text)).code == 0
    one = next(row for row in (await world.run("sessions")).out.splitlines() if "one" in row)[:8]
    with zsh(world) as types:
        types("autoload -U compinit; compinit -u -D; source <(yarrow --completions zsh); echo re''ady\n", "\nready")
        # The first tab lists nothing if the ids begin alike.
        types("yarrow -r \t\t", "one `touch run` %F{red}")
        types(f"\x15yarrow -r {one[:7]}\t", f"yarrow -r {one}")
        types("\x15echo ne''xt\n", "\nnext")
        types("yarrow --permissions \t", "read-only tools only")
    assert not (world.project / "run").exists()


def test_zsh_completes_flags_values_commands_and_words(world: World) -> None:
    with zsh(world) as types:
        types("autoload -U compinit; compinit -u -D; source <(yarrow --completions zsh); echo re''ady\n", "\nready")
        for line, rest in [
            ("yarrow --perm\t", "issions"),
            ("yarrow --permissions pl\t", "an"),
            ("yarrow sess\t", "ions"),
            ("yarrow sessions sta\t", "ts"),
            ("yarrow config sch\t", "ema"),
            ("yarrow --provider gem\t", "ini"),
            ("yarrow -m some:\t", "model"),
            ("yarrow explain @on\t", "ly.txt"),
        ]:
            types(line, line.strip() + rest)
            types("\x15echo ne''xt\n", "\nnext")


@pytest.mark.parametrize("name", COMPLETION_SHELLS)
def test_every_flag_and_command_is_in_the_script(name: str) -> None:
    text = make_script(name)
    for flag in FLAGS:
        assert (flag.names[-1] if name != "fish" else f"-l {flag.names[-1][2:]} ") in text
    for command, words in COMMAND_WORDS.items():
        assert command in text
        assert all(word in text for word in words)


@pytest.mark.parametrize("arguments", [["--completions", "csh"], ["--completions"], ["--completions", "bash", "hi"]])
async def test_an_unsupported_shell_is_reported(world: World, arguments: list[str]) -> None:
    ended = await world.run(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert "completions" in ended.err


def test_completed_subcommands_are_those_of_the_commands() -> None:
    assert list(COMMAND_WORDS) == list(COMMANDS)
    assert {command for command, words in COMMAND_WORDS.items() if words} | {"init"} == set(COMMANDS_WITH_WORDS)
    assert set(SESSION_ID_WORDS) == {*SESSION_COMMANDS, "delete"}
    assert {*SESSION_ID_WORDS, "list", "all", "tree", "search", "import"} == set(COMMAND_WORDS["sessions"])


@pytest.mark.parametrize(
    "line", [f"{command} {word}" for command in COMMAND_WORDS for word in COMMAND_WORDS[command] if word != "pull"]
)
async def test_no_completed_subcommand_is_rejected(world: World, line: str) -> None:
    world.environment["PATH"] = "/nonexistent"
    ended = await world.run(*line.split())
    assert " takes " not in ended.err
    assert "unknown command" not in ended.err or line.split()[1] in ("search", "delete", "import"), ended.err
