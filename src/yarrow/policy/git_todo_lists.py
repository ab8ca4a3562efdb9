"""Commands in the list of a git operation that stopped: the user's `git rebase --continue` runs them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from yarrow.policy.sandbox.git_files import read_content

TODO_FILES = ("rebase-merge/git-rebase-todo", "sequencer/todo", "rebase-apply/git-rebase-todo")
"""Lists of steps in a git directory."""
MAX_TODO_BYTES = 1_048_576
"""Bytes that are read of a list; a longer one counts as a command by itself, since git reads all of it."""
TOO_MANY_STEPS = "more steps than were checked"
_COMMAND = re.compile(rb"^[ \t]*(?:exec|x)(?:[ \t\r]+(.*?))?[ \t\r]*$", re.MULTILINE)


def read_exec_commands(directories: Iterable[Path]) -> dict[Path, tuple[str, ...]]:
    """Return the commands in the lists of some git directories, by list."""
    lists = (directory / name for directory in directories for name in TODO_FILES)
    return {path: commands for path in lists if (commands := tuple(_commands(path)))}


def new_exec_commands(
    before: Mapping[Path, Sequence[str]], after: Mapping[Path, Sequence[str]]
) -> list[tuple[Path, str]]:
    """Return the commands that came to be in lists since the look before."""
    return [
        (path, one)
        for path, commands in after.items()
        for one in dict.fromkeys(commands)
        if one not in before.get(path, ())
    ]


def _commands(path: Path) -> Iterator[str]:
    text = read_content(path, MAX_TODO_BYTES + 1, follows=True)  # as git does
    is_cut = len(text) > MAX_TODO_BYTES
    for found in _COMMAND.finditer(text.rpartition(b"\n")[0] if is_cut else text):
        yield f"exec {(found[1] or b'').decode(errors='replace')}"
    if is_cut:
        yield TOO_MANY_STEPS
