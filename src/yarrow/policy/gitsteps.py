"""Commands in the list of a git operation that stopped: the user's `git rebase --continue` runs them."""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from yarrow.platform import system

LISTS = ("rebase-merge/git-rebase-todo", "sequencer/todo", "rebase-apply/git-rebase-todo")
"""Lists of steps in a git directory."""
LIST_BYTES = 1_048_576
"""Bytes that are read of a list; a longer one counts as a command by itself, since git reads all of it."""
TOO_LONG = "more steps than were checked"
_COMMAND = re.compile(rb"^[ \t]*(?:exec|x)(?:[ \t\r]+(.*?))?[ \t\r]*$", re.MULTILINE)


def look(directories: Iterable[Path]) -> dict[Path, tuple[str, ...]]:
    """Return the commands in the lists of some git directories, by list."""
    lists = (directory / name for directory in directories for name in LISTS)
    return {path: commands for path in lists if (commands := tuple(_commands(path)))}


def added(before: Mapping[Path, Sequence[str]], after: Mapping[Path, Sequence[str]]) -> list[tuple[Path, str]]:
    """Return the commands that came to be in lists since the look before."""
    return [
        (path, one)
        for path, commands in after.items()
        for one in dict.fromkeys(commands)
        if one not in before.get(path, ())
    ]


def _commands(path: Path) -> Iterator[str]:
    content = _content(path)
    is_cut = len(content) > LIST_BYTES
    for found in _COMMAND.finditer(content.rpartition(b"\n")[0] if is_cut else content):
        yield f"exec {(found[1] or b'').decode(errors='replace')}"
    if is_cut:
        yield TOO_LONG


def _content(path: Path) -> bytes:
    """Return what a file holds, also through a symlink, which git follows; nothing for what is no file."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | system.NO_WAIT | system.PLAIN), "rb") as file:
            return file.read(LIST_BYTES + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except OSError:
        return b""
