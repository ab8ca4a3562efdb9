"""Reads ignore files, such as `.gitignore`, and tells what their last word on a path is."""

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from yarrow.platform import system
from yarrow.tool.globs import NameMatcher, compile_names, match_names

MAX_IGNORE_FILE_BYTES = 16_777_216
"""The largest ignore file; one that is larger is as if it were not there, as is one that is no regular file."""
PLAIN_NAME_PATTERN = r"[^/*?\[\]\\{}]+"
"""A pattern that means one name, wherever it lies."""


class _IgnoreRule(Struct, frozen=True):
    """One line of an ignore file."""

    names: list[NameMatcher]
    is_anchored: bool
    """Matched against the whole path, not against the last name of it."""
    only_directories: bool
    ignores: bool
    """False for a line with `!`, which brings back."""
    plain: str = ""
    """The one name that is meant, where it is written plainly and not anchored."""


class IgnoreFile:
    """The rules of one ignore file, the last one first."""

    def __init__(self, text: str) -> None:
        self._rules: list[tuple[int, _IgnoreRule]] = []
        self._plain: dict[str, list[tuple[int, _IgnoreRule]]] = {}
        """By the name, those that speak of one name wherever it lies: a long file has mostly such."""
        for number, line in enumerate(reversed(text.split("\n"))):
            rule = _parse_rule(line)
            if rule is None:
                continue
            if rule.plain:
                self._plain.setdefault(rule.plain, []).append((number, rule))
            else:
                self._rules.append((number, rule))

    def decide(self, names: Sequence[str], *, is_dir: bool) -> bool | None:
        """Whether a path, by its names from the ignore file's directory on, is ignored; None when nothing is said.

        It speaks of the path alone, not of the directories it lies in: whoever walks does not enter those.
        """
        plain = next(
            (found for found in self._plain.get(names[-1], ()) if is_dir or not found[1].only_directories), None
        )
        for number, rule in self._rules:
            if plain is not None and plain[0] < number:
                break
            if (is_dir or not rule.only_directories) and match_names(
                rule.names, names if rule.is_anchored else names[-1:]
            ):
                return rule.ignores
        return None if plain is None else plain[1].ignores


def read_ignore_file(path: str) -> IgnoreFile | None:
    """Return what an ignore file says, None when there is none to be read."""
    try:
        with open(os.open(path, os.O_RDONLY | system.BASE_FLAGS | system.NONBLOCK), "rb") as file:  # a FIFO would wait
            if not _is_usable(os.fstat(file.fileno())):
                return None
            data = file.read(MAX_IGNORE_FILE_BYTES)
    except OSError:
        return None
    return IgnoreFile(data.decode("utf-8-sig", "surrogateescape").replace("\r\n", "\n").replace("\r", "\n"))


def is_unusable_ignore_file(path: str) -> bool:
    """Whether something by that path is there that `read_ignore_file` passes over, and others might read for ever."""
    try:
        return not _is_usable(Path(path).stat())
    except OSError:
        return False


def _is_usable(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_size <= MAX_IGNORE_FILE_BYTES


def _parse_rule(line: str) -> _IgnoreRule | None:
    """Read a line, None for an empty one and for a comment."""
    line = re.sub(r"(?<!\\) +$", "", line.rstrip("\r\n"))
    if not line or line.startswith("#"):
        return None
    ignores = not line.startswith("!")
    pattern = line if ignores else line[1:]
    stem = pattern.rstrip("/")
    if re.fullmatch(PLAIN_NAME_PATTERN, stem):
        return _IgnoreRule([], is_anchored=False, only_directories=stem != pattern, ignores=ignores, plain=stem)
    names = compile_names(_unescape(stem))
    if names[-1] is None:
        names += compile_names("*")  # `a/**` is all that lies in `a`, not `a` itself
    return _IgnoreRule(names, "/" in stem, stem != pattern, ignores)


def _unescape(pattern: str) -> str:
    """Write a character that a backslash makes an ordinary one as our globs do: `[*]` for `\\*`."""
    return re.sub(r"\\(.)", lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], pattern)
