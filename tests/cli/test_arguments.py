"""Parsing of the command line: prompts, flags, and messages about errors."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.cli.arguments import Arguments, parse_arguments
from yarrow.cli.command_table import COMMAND_WORDS, COMMANDS, FLAGS, THINKING_LEVELS
from yarrow.cli.help import format_help
from yarrow.errors import Code, UsageError
from yarrow.message import ThinkingLevel


def refusal(*argv: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse_arguments(argv)
    assert caught.value.code is Code.USAGE
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], Arguments()),
        (["fix", "the build"], Arguments(words=("fix", "the build"))),
        (["fix", "--json", "it", "-c"], Arguments(words=("fix", "it"), json=True, newest=True)),
        (["-p", "serve"], Arguments(print="serve")),
        (["-p", "sesions"], Arguments(print="sesions")),
        (["truth"], Arguments(words=("truth",))),
        (["--", "serve", "@x", "--json"], Arguments(literal=("serve", "@x", "--json"))),
        (["say", "--", "--help"], Arguments(words=("say",), literal=("--help",))),
        (["-p"], Arguments(print="")),
        (["-p", "--json"], Arguments(print="", json=True)),
        (["-p", "review", "@a.py"], Arguments(print="review", words=("@a.py",))),
        (["--print=-x"], Arguments(print="-x")),
        (["- one point", "-5"], Arguments(words=("- one point", "-5"))),
        (["explain serve"], Arguments(words=("explain serve",))),
        (["explain", "serve"], Arguments(words=("explain", "serve"))),
        (["-p", "x", "sessions"], Arguments(print="x", words=("sessions",))),
        (["serve"], Arguments(command="serve")),
        (["serve", "--socket", "/s"], Arguments(command="serve", socket="/s")),
        (["models", "get", "small"], Arguments(command="models", words=("get", "small"))),
        (["--json", "doctor"], Arguments(command="doctor", json=True)),
        (
            ["--attach", "unix:/s", "sessions", "delete", "ID"],
            Arguments(command="sessions", words=("delete", "ID"), attach="unix:/s"),
        ),
        (
            ["--session-dir", "d", "sessions", "rebase", "ID", "1", "--squash"],
            Arguments(command="sessions", words=("rebase", "ID", "1", "--squash"), session_dir="d"),
        ),
        (["-m", "a", "serve", "--socket", "/s"], Arguments(command="serve", model="a", socket="/s")),
        (["--json", "sessions are lost"], Arguments(words=("sessions are lost",), json=True)),
        (["-m", "a", "-p", "sessions", "list"], Arguments(model="a", print="sessions", words=("list",))),
        (["-m", "a", "--", "sessions", "list"], Arguments(model="a", literal=("sessions", "list"))),
        (["-m", "a", "@f", "sessions"], Arguments(model="a", words=("@f", "sessions"))),
        (["--list-models"], Arguments(list_models=True)),
        (["-m", "qwen3:8b"], Arguments(model="qwen3:8b")),
        (["-m", "work/qwen3:8b:high"], Arguments(model="work/qwen3:8b", thinking="high")),
        (["-m", "a:high", "--thinking", "low"], Arguments(model="a", thinking="low")),
        (["-m", "high"], Arguments(model="high")),
        (["-m", ":high"], Arguments(model=":high")),
        (["--tools", "read, grep,", "x"], Arguments(words=("x",), tools=("read", "grep"))),
        (["--no-tools"], Arguments(tools=())),
        (["--system-prompt", ""], Arguments(system_prompt="")),
        (["--append-system-prompt", "be brief"], Arguments(append_system_prompt="be brief")),
        (["-r", "4444", "--dry-run"], Arguments(resume="4444", dry_run=True)),
        (["--no-session", "--session-dir", "/s"], Arguments(no_session=True, session_dir="/s")),
        (["--sandbox", "off", "--plain"], Arguments(sandbox="off", plain=True)),
        (["--attach", "unix:/s"], Arguments(attach="unix:/s")),
        (["--model", "a", "--model", "b"], Arguments(model="b")),
        (["--version"], Arguments(show="version")),
        (["-h"], Arguments(show="help")),
        (["--help"], Arguments(show="help")),
        (["help"], Arguments(show="help")),
        (["help", "trust"], Arguments(show="help", command="trust")),
        (["fix", "--help"], Arguments(show="help", words=("fix",))),
        (["serve", "--help"], Arguments(show="help", command="serve")),
        (["x", "--version", "--help"], Arguments(show="version", words=("x",))),
    ],
)
def test_command_lines_are_parsed(argv: list[str], expected: Arguments) -> None:
    assert parse_arguments(argv) == expected


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--modle", "x"], "unknown flag --modle; did you mean --model?"),
        (["--dryrun"], "unknown flag --dryrun; did you mean --dry-run?"),
        (["--thinkng=high"], "unknown flag --thinkng; did you mean --thinking?"),
        (["--mod", "x"], "unknown flag --mod; did you mean --model?"),
        (["-x"], "unknown flag -x; run yarrow --help for all flags"),
        (["--export", "a.html", "hi"], "--export can't be used with a prompt or a command"),
        (["--model", ""], "--model is empty; give it a value: --model MODEL"),
        (["--session-dir="], "--session-dir is empty; give it a value: --session-dir PATH"),
        (["serve", "now"], "yarrow serve accepts no prompt; to send the word as one: yarrow -p serve"),
        (["models", "-p", ""], "yarrow models accepts no prompt; to send the word as one: yarrow -p models"),
        (["serve", "--", "x"], "yarrow serve accepts no prompt; to send the word as one: yarrow -p serve"),
        (["--list-models", "x"], "--list-models can't be used with a prompt or a command"),
        (["serve", "--list-models"], "--list-models can't be used with a prompt or a command"),
        (["-c", "-r", "x"], "--continue and --resume can't be used together"),
        (["--no-session", "-c"], "--no-session and --continue can't be used together"),
        (["--no-session", "-r", "x"], "--no-session and --resume can't be used together"),
        (["--json", "--plain"], "--json and --plain can't be used together"),
        (["--tools", "read", "--no-tools"], "--tools and --no-tools can't be used together"),
        (["--attach", "unix:/s", "--session-dir", "x"], "--attach and --session-dir can't be used together"),
        (["serve", "--attach", "unix:/s", "--socket", "x"], "--attach and --socket can't be used together"),
        (["--socket", "x"], "--socket can be used only with yarrow serve"),
        (["--export"], "--export needs a value: --export PATH"),
        (["-m"], "-m/--model needs a value: --model MODEL"),
        (
            ["--sandbox", "x"],
            "--sandbox must be one of: off, workspace, strict (got 'x')",
        ),
        (
            ["sesions"],
            "unknown command 'sesions'; did you mean yarrow sessions? To send it as a prompt: yarrow -p sesions",
        ),
        (
            ["--json", "doctr"],
            "unknown command 'doctr'; did you mean yarrow doctor? To send it as a prompt: yarrow -p doctr",
        ),
        (
            ["-m", "mock-2", "doctor", "json"],
            (
                "yarrow doctor does not accept --model: run yarrow doctor json; to send the words as a prompt: "
                "yarrow --model MODEL -p 'doctor json'"
            ),
        ),
        (
            ["init", "--dry-run"],
            (
                "yarrow init does not accept --dry-run: run yarrow init; to send the words as a prompt: "
                "yarrow --dry-run -p init"
            ),
        ),
        (
            ["-c", "sessions", "show"],
            (
                "yarrow sessions does not accept --continue: run yarrow sessions show ID; to send the words as a "
                "prompt: yarrow --continue -p 'sessions show'"
            ),
        ),
        (
            ["version"],
            "unknown command 'version'; did you mean yarrow --version? To send it as a prompt: yarrow -p version",
        ),
    ],
)
def test_invalid_command_lines_are_reported(argv: list[str], message: str) -> None:
    assert refusal(*argv) == message


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["-m"], "--model"),
        (["--json=1"], "--json"),
        (["--thinking", "hihg"], "high"),
        (["--sandbox", "tight"], "strict"),
    ],
)
def test_an_error_suggests_the_nearest_valid_value(argv: list[str], named: str) -> None:
    assert named in refusal(*argv)


@given(
    st.lists(
        st.sampled_from(["-p", "serve", "x", "-c", "--json", "--", "@a", "-m", "a:b", "-", ""]) | st.text(max_size=4)
    )
)
def test_any_command_line_is_parsed_or_a_one_line_error(argv: list[str]) -> None:
    with contextlib.suppress(UsageError):
        arguments = parse_arguments(argv)
        assert not (arguments.command == "serve" and arguments.has_prompt)
        assert not (arguments.list_models and arguments.has_prompt)


def test_only_flags_that_are_set_override_settings() -> None:
    assert parse_arguments(["x"]).overrides() == {}
    argv = ["-m", "a/b:low", "--provider", "p", "--dry-run", "--sandbox", "off", "--session-dir", "/s"]
    assert parse_arguments(argv).overrides() == {
        "provider": "p",
        "model": "a/b",
        "thinking": "low",
        "dryRun": True,
        "sandbox": "off",
        "sessionDir": "/s",
    }


@pytest.mark.parametrize(
    ("argv", "expected"),
    [([], False), (["--json"], False), (["-p"], False), (["-p", "x"], True), (["@f"], True), (["--", "x"], True)],
)
def test_the_presence_of_a_prompt_is_detected(argv: list[str], expected: bool) -> None:
    assert parse_arguments(argv).has_prompt is expected


def test_thinking_levels_are_those_of_messages() -> None:
    assert [level.value for level in ThinkingLevel] == list(THINKING_LEVELS)


# ---- help ----


def test_the_help_names_every_flag_command_and_exit_code() -> None:
    text = format_help()
    for flag in FLAGS:
        assert all(name in text for name in flag.names)
        assert flag.help in text
    for name, meaning in COMMANDS.items():
        assert f"  {name} " in text
        assert meaning in text
    assert all(f"\n  {code} " in text for code in (0, 1, 2, 3, 4, 5, 130))


def test_the_help_fits_a_terminal_and_mentions_the_sandbox() -> None:
    text = format_help()
    assert max(map(len, text.splitlines())) <= 100
    assert not any(line != line.rstrip() for line in text.splitlines())
    assert "otherwise Yarrow asks first" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_its_subcommands(command: str) -> None:
    text = format_help(command)
    assert text.startswith(f"{COMMANDS[command][:1].upper()}{COMMANDS[command][1:]}\n")
    assert not [word for word in COMMAND_WORDS[command] if word not in text]
    assert f"\nUsage: yarrow {command}" in text
    assert ("--listen HOST:PORT" in text) is (command == "serve")
    assert "--attach ADDRESS" not in text
    assert text.endswith("Run yarrow --help for all commands and flags.\n")
    assert max(map(len, text.splitlines())) <= 100


# ---- imports ----

HEAVY = (
    "asyncio",
    "msgspec",
    "grpc",
    "google.protobuf",
    "pathlib",
    "subprocess",
    "ssl",
    "socket",
    "inspect",
    "yarrow.errors",
)


SOURCE = str(Path(__file__).parents[2] / "src")


def imported_by(statement: str) -> set[str]:
    code = f"{statement}; import sys; print(*sys.modules)"
    # -S, since what an environment puts into every start is not ours.
    result = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.append({SOURCE!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(result.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "from yarrow.cli.arguments import parse_arguments; parse_arguments(['-m', 'x', 'prompt'])",
        "from yarrow.cli.help import format_help; format_help()",
    ],
)
def test_reading_the_command_line_imports_nothing_heavy(statement: str) -> None:
    assert not imported_by(statement) & set(HEAVY)


def test_version_does_not_import_the_parser() -> None:
    code = "from yarrow.cli.arguments import parse_arguments; parse_arguments(['--version'])"
    assert "argparse" not in imported_by(code)
