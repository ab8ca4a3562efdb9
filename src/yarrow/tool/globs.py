"""Matching of paths against globs such as `*.py`, `src/**/*.ts`, `*.{js,jsx}` and `!*.min.js`."""

import fnmatch
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

MAX_ALTERNATIVES = 64
"""Maximum globs that braces expand to; the rest are dropped."""

NameMatcher: TypeAlias = Callable[[str], object] | None
"""Tests one name; None is `**`, which matches any number of names."""


ESCAPED_CHARACTER = re.compile(r"\\([*?\[\]{}!\\])")


class Glob:
    """A glob. Without a slash it matches the last name of a path, with a slash the whole path.

    Brackets match themselves as well as a set of characters. If `app/[id]` exists, `app/[id]/*` matches only below it.
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
        """Return whether a relative path with slashes matches."""
        names = path.split("/") if self._whole else [path.rpartition("/")[2]]
        return any(match_names(alternative, names) for alternative in self._alternatives) != self._inverted


def describe_scope(pattern: str) -> str:
    """Return a note for a search without results if the pattern points outside the searched directory; else empty."""
    is_outside = pattern.startswith(("/", "~/")) or ".." in pattern.split("/")
    return "a glob only matches inside path; set path to search another directory" if is_outside else ""


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
    """Return a pattern that starts with a root anchored there; return any other unchanged."""
    if pattern.startswith("~/") and not _exists("~", roots):
        pattern = os.path.expanduser(pattern)  # noqa: PTH111  (Path would also expand ~user, and raise)
    for root in roots:
        start = f"{str(root).rstrip('/')}/"
        if pattern.startswith(start):
            return f"/{pattern.removeprefix(start).lstrip('/')}"
    return pattern


def _exists(name: str, roots: Sequence[Path]) -> bool:
    return any(os.path.lexists(root / name) for root in roots)


def _compile_path(pattern: str, roots: Sequence[Path]) -> list[NameMatcher]:
    """Compile the names of a pattern; its leading part that exists literally matches only itself."""
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
    """Return a regular expression for a name: its brackets as sets, literally, and with escapes resolved."""
    if "[" not in name and "\\" not in name:
        return fnmatch.translate(name)
    unescaped = ESCAPED_CHARACTER.sub(lambda match: f"[{match[1]}]" if match[1] in "*?[" else match[1], name)
    readings = (name.replace("[^", "[!"), name.replace("[", "[[]"), unescaped.replace("[^", "[!"))
    return "|".join(map(fnmatch.translate, readings))


def compile_names(pattern: str) -> list[NameMatcher]:
    """Compile the names of a pattern in an ignore file."""
    names: list[NameMatcher] = []
    for name in pattern.strip("/").split("/"):
        if name == "**":
            names += [None] if names[-1:] != [None] else []  # consecutive `**` are equivalent to one
        else:
            names.append(re.compile(fnmatch.translate(name.replace("[^", "[!"))).match)
    return names


def match_names(pattern: Sequence[NameMatcher], names: Sequence[str]) -> bool:
    """Return whether the names match. Follows all readings of `**` at once, so that several cost no more than one."""
    at = _find_reachable(pattern, 0)
    for name in names:
        step: set[int] = set()
        for place in at - {len(pattern)}:
            part = pattern[place]
            if part is None:
                step |= _find_reachable(pattern, place)  # `**` consumes the name and remains
            elif part(name):
                step |= _find_reachable(pattern, place + 1)
        at = step
    return len(pattern) in at


def _find_reachable(pattern: Sequence[NameMatcher], place: int) -> set[int]:
    """Return the place and all places reached from it by letting each following `**` match no name."""
    reached = {place}
    while place < len(pattern) and pattern[place] is None:
        place += 1
        reached.add(place)
    return reached
