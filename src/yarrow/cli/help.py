"""What `yarrow --help` prints."""

from collections.abc import Iterable
from itertools import groupby

from yarrow.cli.exit_codes import MEANINGS
from yarrow.cli.flags import COMMANDS, FLAGS, Flag

_WIDE, _NARROW = 36, 12
"""Where explanations of flags and of short words begin."""

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


def help_text() -> str:
    """Return the help, made from the tables of flags and exit codes."""
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


def _names(flag: Flag) -> str:
    names = ", ".join(flag.names)
    indent = "" if len(flag.names) > 1 else "    "
    return f"{indent}{names} {flag.value}".rstrip()


def _section(title: str, column: int, rows: Iterable[tuple[str, str]]) -> str:
    lines = (f"  {left:<{column - 2}}{right}" for left, right in rows)
    return "\n".join([title, *lines, ""])
