"""Matches paths against globs as developers write them: `*.py`, `src/**/*.ts`, `*.{js,jsx}`, `!*.min.js`."""

import fnmatch
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

MAX_ALTERNATIVES = 64
"""The most globs that braces make of one; of more, the rest is left out."""

NameMatcher: TypeAlias = Callable[[str], object] | None
"""Whether a name matches; None stands for `**`, any number of names."""


ESCAPED_CHARACTER = re.compile(r"\\([*?\[\]{}!\\])")


class Glob:
    """One glob. Without a slash it matches the last name of a path, with a slash the whole path.

    Brackets match themselves as well as a set of characters. Where `app/[id]` exists, `app/[id]/*` matches it alone.
    """

    def __init__(self, pattern: str, *roots: Path) -> None:
        """`roots` are spellings of the directory that paths are relative to; an absolute pattern may start with one."""
        first = pattern.partition("/")[0]
        self._inverted = first.startswith("!") and not _exists(first, roots)
        pattern = _make_relative(pattern[1:] if self._inverted else pattern, roots).removeprefix("./")
        self._whole = "/" in pattern.rstrip("/")
        alternatives = dict.fromkeys([pattern, *_expand_braces(pattern)])
        self._alternatives = [_compile_path(one, roots if self._whole else ()) for one in alternatives]

    def matches(self, path: str) -> bool:
        """Whether a path, relative and with slashes, matches."""
        names = path.split("/") if self._whole else [path.rpartition("/")[2]]
        return any(match_names(alternative, names) for alternative in self._alternatives) != self._inverted


def describe_scope(pattern: str) -> str:
    """Return how a pattern that reaches outside is understood, for a search without a result; empty for any other."""
    is_outside = pattern.startswith(("/", "~/")) or ".." in pattern.split("/")
    return "a glob matches only below path; set path to search another directory" if is_outside else ""


def _expand_braces(pattern: str) -> list[str]:
    done: list[str] = []
    waiting = [pattern]
    while waiting and len(done) < MAX_ALTERNATIVES:
        head, *rest = re.split(r"(?<!\\)\{([^{}]*,[^{}]*)\}", waiting.pop(), maxsplit=1)
        if rest:
            waiting += [head + middle + rest[1] for middle in rest[0].split(",")][::-1][:MAX_ALTERNATIVES]
        else:
            done.append(head)
    return done


def _make_relative(pattern: str, roots: Sequence[Path]) -> str:
    """Return a pattern that starts with a root as one anchored there; any other unchanged."""
    if pattern.startswith("~/") and not _exists("~", roots):
        pattern = os.path.expanduser(pattern)  # noqa: PTH111  (Path would also take ~somebody, and raise)
    for root in roots:
        start = f"{str(root).rstrip('/')}/"
        if pattern.startswith(start):
            return f"/{pattern.removeprefix(start).lstrip('/')}"
    return pattern


def _exists(name: str, roots: Sequence[Path]) -> bool:
    return any(os.path.lexists(root / name) for root in roots)


def _compile_path(pattern: str, roots: Sequence[Path]) -> list[NameMatcher]:
    """Return what each name of a path must match; a leading part that exists as written matches only itself."""
    names: list[NameMatcher] = []
    written: list[str] = []
    is_literal = bool(roots)
    for name in pattern.split("/"):
        if name in ("", "."):
            continue
        written.append(name)
        is_literal = is_literal and not re.search(r"[*?]|^\.\.$", name) and _exists("/".join(written), roots)
        if name == "**":
            names += [None] if names[-1:] != [None] else []
        else:
            names.append(re.compile(re.escape(name) if is_literal else _make_expression(name)).fullmatch)
    return names


def _make_expression(name: str) -> str:
    """Return a regular expression for a name: its brackets as sets, as themselves, and with escapes resolved."""
    if "[" not in name and "\\" not in name:
        return fnmatch.translate(name)
    unescaped = ESCAPED_CHARACTER.sub(lambda match: f"[{match[1]}]" if match[1] in "*?[" else match[1], name)
    readings = (name.replace("[^", "[!"), name.replace("[", "[[]"), unescaped.replace("[^", "[!"))
    return "|".join(map(fnmatch.translate, readings))


def compile_names(pattern: str) -> list[NameMatcher]:
    """Return what each name of a path must match, for a line of an ignore file."""
    names: list[NameMatcher] = []
    for name in pattern.strip("/").split("/"):
        if name == "**":
            names += [None] if names[-1:] != [None] else []  # two in a row mean what one does
        else:
            names.append(re.compile(fnmatch.translate(name.replace("[^", "[!"))).match)
    return names


def match_names(pattern: Sequence[NameMatcher], names: Sequence[str]) -> bool:
    """Whether the names match, trying all ways to read `**` at once, so that many of them cost no more than one."""
    at = _find_reachable(pattern, 0)
    for name in names:
        step: set[int] = set()
        for place in at - {len(pattern)}:
            part = pattern[place]
            if part is None:
                step |= _find_reachable(pattern, place)  # `**` takes the name and goes on
            elif part(name):
                step |= _find_reachable(pattern, place + 1)
        at = step
    return len(pattern) in at


def _find_reachable(pattern: Sequence[NameMatcher], place: int) -> set[int]:
    """Return the place, and those reached from it when each `**` that follows stands for no name."""
    reached = {place}
    while place < len(pattern) and pattern[place] is None:
        place += 1
        reached.add(place)
    return reached
