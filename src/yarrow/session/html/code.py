"""Colours code and diffs: only a handful of classes, which the style sheet knows, go into the page."""

import functools
import itertools
import time
from collections.abc import Iterator
from pathlib import PurePath

from pygments import lexers
from pygments.lexer import Lexer
from pygments.token import Token

from yarrow.session.html.markup import Html, element, inert, text

MAX_COLOURED = 20_000
"""Characters of the longest code that is coloured; a longer one is shown plain."""
MAX_COLOURED_ON_A_PAGE = 1_000_000
"""Characters of code that are coloured in one session, since that takes seconds; what comes after is shown plain."""
MAX_SECONDS = 2.0
"""Time for one piece of code. Code that takes longer was made to: its rest, and all code after it, is shown plain."""

_CLASSES = (
    (Token.Comment, "comment"),
    (Token.Keyword, "keyword"),
    (Token.Literal.String, "string"),
    (Token.Literal, "number"),
    (Token.Name.Function, "name"),
    (Token.Name.Class, "name"),
    (Token.Name.Tag, "keyword"),
    (Token.Name.Attribute, "name"),
    (Token.Name.Builtin, "builtin"),
    (Token.Name.Decorator, "builtin"),
)
_DIFF_CLASSES = {"+": "added", "-": "removed", "@": "hunk"}


class Painter:
    """Colours the code of one page, as far as that can be had in reasonable time."""

    def __init__(self) -> None:
        self._left = MAX_COLOURED_ON_A_PAGE

    def block(self, code: str, *, language: str = "", filename: str = "") -> Html:
        """Return code, coloured when its language is known by name or by how the name of its file ends."""
        language = (language or PurePath(filename).suffix[1:]).lower()
        if language == "diff":
            return diff_block(code)
        lexer = _lexer(language) if len(code) <= min(MAX_COLOURED, self._left) else None
        if lexer is None:
            return element("pre", element("code", text(code)))
        self._left -= len(code)
        return element("pre", element("code", *self._coloured(lexer, inert(code))))

    def _coloured(self, lexer: Lexer, code: str) -> Iterator[Html]:
        deadline = time.monotonic() + MAX_SECONDS
        done = 0
        for kind, group in itertools.groupby(lexer.get_tokens(code), lambda token: _class(token[0])):
            part = "".join(value for _, value in _until(deadline, group))
            done += len(part)
            yield element("span", text(part), class_=kind) if kind else text(part)
            if time.monotonic() > deadline:
                self._left = 0
                yield text(code[done:])
                return


def diff_block(diff: str) -> Html:
    """Return a unified diff with what it adds and removes in colours."""
    lines = inert(diff).split("\n")
    if lines[-1] == "":
        lines.pop()
    parts: list[Html] = []
    for kind, group in itertools.groupby(lines, _diff_class):
        content = text("\n".join(group))
        parts.append(element("span", content, class_=kind) if kind else content)
    return element("pre", element("code", Html("\n".join(parts))), class_="diff")


def plain_block(plain: str) -> Html:
    """Return text as it is, each line as it was written."""
    return element("pre", text(plain))


def _diff_class(line: str) -> str:
    return "file" if line.startswith(("+++ ", "--- ")) else _DIFF_CLASSES.get(line[:1], "")


def _lexer(language: str) -> Lexer | None:
    """Return what reads a language; a new one each time, since some keep a state."""
    if language not in _languages():  # an unknown one would be looked for among all that is installed
        return None
    # What would be stripped is part of the code.
    return lexers.find_lexer_class_by_name(language)(stripnl=False, ensurenl=False)


@functools.cache
def _languages() -> frozenset[str]:
    return frozenset(alias for _, aliases, _, _ in lexers.get_all_lexers(plugins=False) for alias in aliases)


def _until(deadline: float, tokens: Iterator[tuple[tuple[str, ...], str]]) -> Iterator[tuple[tuple[str, ...], str]]:
    for token in tokens:
        yield token
        if time.monotonic() > deadline:
            return


@functools.lru_cache(512)
def _class(kind: tuple[str, ...]) -> str:
    return next((name for parent, name in _CLASSES if kind[: len(parent)] == parent), "")
