"""Matches paths against globs as developers write them: `*.py`, `src/**/*.ts`, `*.{js,jsx}`, `!*.min.js`."""

import fnmatch
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

ALTERNATIVES = 64
"""The most globs that braces make of one; of more, the rest is left out."""

Name: TypeAlias = Callable[[str], object] | None
"""Whether a name matches; None stands for `**`, any number of names."""


class Glob:
    """One glob. Without a slash it is matched against the last name of a path, with one against the whole."""

    def __init__(self, pattern: str) -> None:
        self._inverted = pattern.startswith("!")
        pattern = pattern.removeprefix("!").removeprefix("./")
        self._whole = "/" in pattern.rstrip("/")
        self._alternatives = [compile_names(alternative) for alternative in _without_braces(pattern)]

    def matches(self, path: str) -> bool:
        """Whether a path, relative and with slashes, is one that is meant."""
        names = path.split("/") if self._whole else [path.rpartition("/")[2]]
        return any(match_names(alternative, names) for alternative in self._alternatives) != self._inverted


def _without_braces(pattern: str) -> list[str]:
    done: list[str] = []
    waiting = [pattern]
    while waiting and len(done) < ALTERNATIVES:
        head, *rest = re.split(r"\{([^{}]*,[^{}]*)\}", waiting.pop(), maxsplit=1)
        if rest:
            waiting += [head + middle + rest[1] for middle in rest[0].split(",")][::-1][:ALTERNATIVES]
        else:
            done.append(head)
    return done


def compile_names(pattern: str) -> list[Name]:
    """Return what each name of a path must match, for a glob without braces."""
    names: list[Name] = []
    for name in pattern.strip("/").split("/"):
        if name == "**":
            names += [None] if names[-1:] != [None] else []  # two in a row mean what one does
        else:
            names.append(re.compile(fnmatch.translate(name.replace("[^", "[!"))).match)
    return names


def match_names(pattern: Sequence[Name], names: Sequence[str]) -> bool:
    """Whether the names match, trying all ways to read `**` at once, so that many of them cost no more than one."""
    at = _reach(pattern, 0)
    for name in names:
        step: set[int] = set()
        for place in at - {len(pattern)}:
            part = pattern[place]
            if part is None:
                step |= _reach(pattern, place)  # `**` takes the name and goes on
            elif part(name):
                step |= _reach(pattern, place + 1)
        at = step
    return len(pattern) in at


def _reach(pattern: Sequence[Name], place: int) -> set[int]:
    """Return the place, and those reached from it when each `**` that follows stands for no name."""
    reached = {place}
    while place < len(pattern) and pattern[place] is None:
        place += 1
        reached.add(place)
    return reached
