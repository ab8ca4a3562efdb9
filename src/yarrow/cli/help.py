"""What `yarrow --help` prints."""

from collections.abc import Iterable
from itertools import groupby

from yarrow.cli.exit_codes import MEANINGS
from yarrow.cli.flags import COMMANDS, FLAGS, WORDS, Flag

_WIDE, _NARROW = 36, 15
"""Where explanations of flags and of short words begin."""

_OF_WORDS = {
    "models": {"pull": "fetch the starter model"},
    "config": {
        "json": "the same for programs",
        "schema": "a JSON Schema of the file, for editors",
        "files": "which files are looked at",
    },
    "trust": {
        "grant": "let exactly this content apply; without a word it is shown and asked",
        "revoke": "take it back",
        "list": "everything that is trusted",
    },
    "permissions": {
        "list": "calls that are always allowed, where that is stored, and their numbers",
        "revoke N": "ask about a call again",
    },
    "sandbox": {
        "quarantine list": "what was taken, why, and its number",
        "quarantine restore N": "put an entry back where it was",
        "quarantine empty": "delete all entries for good; --yes does not ask",
    },
    "doctor": {"json": "the same for programs"},
}
"""What the words after a command do; those of `sessions` have a text of their own."""
_OF_CLIENTS = ("--attach", "--tls-pin")
"""Flags about a service that are not for `serve`."""

_HEAD = """\
Usage: yarrow [FLAGS] PROMPT... [@FILE...]
       yarrow COMMAND [FLAGS]

A coding agent: it answers a prompt, running tools in this directory until it is done.
Shell commands run in a sandbox where bubblewrap is installed; without one you are asked (docs/sandbox.md).

  yarrow "why does the build fail?"
  yarrow explain @src/main.py
  git diff | yarrow -p "review this"
"""

_TAIL = """\
Settings: ~/.yarrow/config.json, then .yarrow/config.json of the project, then YARROW_* variables, then flags.
"""


def help_text(command: str = "") -> str:
    """Return the help, made from the tables of flags and exit codes, or that of one command."""
    if command:
        return _of_command(command)
    sections = [_HEAD, _section("Commands", _NARROW, COMMANDS.items())]
    sections += [
        _section(group, _WIDE, ((_names(flag), flag.help) for flag in flags))
        for group, flags in groupby(FLAGS, key=lambda flag: flag.group)
    ]
    sections += [
        _section("Exit codes", _NARROW, ((str(int(code)), meaning) for code, meaning in MEANINGS.items())),
        _TAIL,
    ]
    return "\n".join(sections)


def _of_command(command: str) -> str:
    sections = [f"yarrow {command}: {COMMANDS[command]}\n"]
    if command == "sessions":
        # Here, since it brings what speaks with the service.
        from yarrow.client.sessions import USAGE

        sections.append(f"{USAGE}\n")
    if words := _OF_WORDS.get(command):
        column = max(_NARROW, *(len(word) + 4 for word in words))
        sections.append(_section(f"Usage: yarrow {command} [{'|'.join(WORDS[command])}]", column, words.items()))
    if command == "serve":
        own = (flag for flag in FLAGS if flag.group == "Service" and flag.names[-1] not in _OF_CLIENTS)
        flags = ((_names(flag), flag.help) for flag in own)
        sections.append(_section("Usage: yarrow serve [FLAGS]", _WIDE, flags))
    return "\n".join([*sections, "yarrow --help tells all commands, flags and exit codes.\n"])


def _names(flag: Flag) -> str:
    names = ", ".join(flag.names)
    indent = "" if len(flag.names) > 1 else "    "
    return f"{indent}{names} {flag.value}".rstrip()


def _section(title: str, column: int, rows: Iterable[tuple[str, str]]) -> str:
    lines = (f"  {left:<{column - 2}}{right}" for left, right in rows)
    return "\n".join([title, *lines, ""])
