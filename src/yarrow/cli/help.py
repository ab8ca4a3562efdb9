"""Help texts of `yarrow` and of each command."""

from collections.abc import Iterable
from itertools import groupby

from yarrow.cli.command_table import COMMAND_WORDS, COMMANDS, FLAGS, Flag
from yarrow.cli.exit_codes import MEANINGS

_FLAG_COLUMN, _WORD_COLUMN = 36, 15
"""Columns at which the explanations of flags and of words start."""

_WORD_HELP = {
    "models": {"pull": "download the starter model"},
    "config": {
        "json": "print the settings as JSON",
        "schema": "print a JSON Schema of the file, for editors",
        "files": "list the files that settings are read from",
    },
    "trust": {
        "grant": "trust this project's file as it is now",
        "revoke": "stop trusting this project's file",
        "list": "list all trusted files",
    },
    "permissions": {
        "list": "list the calls that are always allowed, with their numbers",
        "revoke N": "stop allowing call N; Yarrow asks about it again",
    },
    "sandbox": {
        "quarantine list": "list the files with their numbers and the reason",
        "quarantine restore N": "move an entry back to its original path",
        "quarantine empty": "delete all entries permanently (--yes skips the question)",
    },
    "doctor": {"json": "print the report as JSON"},
}
"""Help of each command's subcommands; `sessions` has its own text."""
_CLIENT_FLAGS = ("--attach", "--tls-pin")
"""Flags of the group Service that `serve` does not accept."""

_HEAD = """\
Usage: yarrow [FLAGS] PROMPT... [@FILE...]
       yarrow COMMAND [FLAGS]

A coding agent that answers a prompt by running tools in this directory.
Shell commands run in a sandbox if bubblewrap is installed; otherwise Yarrow asks first
(see yarrow doctor).

  yarrow "why does the build fail?"
  yarrow explain @src/main.py
  git diff | yarrow -p "review this"
"""

_TAIL = """\
Precedence of settings: flags, YARROW_* variables, the project's .yarrow/config.json,
~/.yarrow/config.json.
"""


def format_help(command: str = "") -> str:
    """Return the help of a command, or the general help, generated from the tables of flags and exit codes."""
    if command:
        return _format_command_help(command)
    sections = [_HEAD, _format_section("Commands", _WORD_COLUMN, COMMANDS.items())]
    sections += [
        _format_section(group, _FLAG_COLUMN, ((_format_names(flag), flag.help) for flag in flags))
        for group, flags in groupby(FLAGS, key=lambda flag: flag.group)
    ]
    sections += [
        _format_section("Exit codes", _WORD_COLUMN, ((str(int(code)), meaning) for code, meaning in MEANINGS.items())),
        _TAIL,
    ]
    return "\n".join(sections)


def _format_command_help(command: str) -> str:
    sections = [f"{COMMANDS[command][:1].upper()}{COMMANDS[command][1:]}\n"]
    if command == "sessions":
        # Imported here: it pulls in the client of the service.
        from yarrow.client.session_listing import USAGE

        sections.append(f"Usage: yarrow sessions [COMMAND]\n{USAGE}\n")
    if words := _WORD_HELP.get(command):
        column = max(_WORD_COLUMN, *(len(word) + 4 for word in words))
        sections.append(
            _format_section(f"Usage: yarrow {command} [{'|'.join(COMMAND_WORDS[command])}]", column, words.items())
        )
    if command == "init":
        sections.append("Usage: yarrow init\n")
    if command == "serve":
        own = (flag for flag in FLAGS if flag.group == "Service" and flag.names[-1] not in _CLIENT_FLAGS)
        flags = ((_format_names(flag), flag.help) for flag in own)
        sections.append(_format_section("Usage: yarrow serve [FLAGS]", _FLAG_COLUMN, flags))
    return "\n".join([*sections, "Run yarrow --help for all commands and flags.\n"])


def _format_names(flag: Flag) -> str:
    names = ", ".join(flag.names)
    indent = "" if len(flag.names) > 1 else "    "
    return f"{indent}{names} {flag.value}".rstrip()


def _format_section(title: str, column: int, rows: Iterable[tuple[str, str]]) -> str:
    lines = (f"  {left:<{column - 2}}{right}" for left, right in rows)
    return "\n".join([title, *lines, ""])
