"""Colours code and diffs: only a handful of classes, which the style sheet knows, go into the page."""

import functools
import itertools
import time
from collections.abc import Iterator
from pathlib import PurePath

from pygments import lexers
from pygments.lexer import Lexer
from pygments.token import Token

from yarrow.session.html.markup import Html, element, escape, reveal_controls

MAX_HIGHLIGHTED_CHARACTERS = 20_000
"""Characters of the longest code that is coloured; a longer one is shown plain."""
MAX_PAGE_CHARACTERS = 1_000_000
"""Characters of code that are coloured in one session, since that takes seconds; what comes after is shown plain."""
MAX_LEXER_SECONDS = 2.0
"""Time for one piece of code. Code that takes longer was made to: its rest, and all code after it, is shown plain."""

_CSS_CLASSES = (
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
_DIFF_CSS_CLASSES = {"+": "added", "-": "removed", "@": "hunk"}


class CodeHighlighter:
    """Colours the code of one page, as far as that can be had in reasonable time."""

    def __init__(self) -> None:
        self._characters_left = MAX_PAGE_CHARACTERS

    def render(self, code: str, *, language: str = "", filename: str = "") -> Html:
        """Return code, coloured when its language is known by name or by how the name of its file ends."""
        language = (language or PurePath(filename).suffix[1:]).lower()
        if language == "diff":
            return render_diff(code)
        lexer = _make_lexer(language) if len(code) <= min(MAX_HIGHLIGHTED_CHARACTERS, self._characters_left) else None
        if lexer is None:
            return element("pre", element("code", escape(code)))
        self._characters_left -= len(code)
        return element("pre", element("code", *self._highlight(lexer, reveal_controls(code))))

    def _highlight(self, lexer: Lexer, code: str) -> Iterator[Html]:
        deadline = time.monotonic() + MAX_LEXER_SECONDS
        done = 0
        for kind, group in itertools.groupby(lexer.get_tokens(code), lambda token: _css_class(token[0])):
            part = "".join(value for _, value in _take_until(deadline, group))
            done += len(part)
            yield element("span", escape(part), class_=kind) if kind else escape(part)
            if time.monotonic() > deadline:
                self._characters_left = 0
                yield escape(code[done:])
                return


def render_diff(diff: str) -> Html:
    """Return a unified diff with what it adds and removes in colours."""
    lines = reveal_controls(diff).split("\n")
    if lines[-1] == "":
        lines.pop()
    parts: list[Html] = []
    for kind, group in itertools.groupby(lines, _diff_css_class):
        content = escape("\n".join(group))
        parts.append(element("span", content, class_=kind) if kind else content)
    return element("pre", element("code", Html("\n".join(parts))), class_="diff")


def render_plain(plain: str) -> Html:
    """Return text as it is, each line as it was written."""
    return element("pre", escape(plain))


def _diff_css_class(line: str) -> str:
    return "file" if line.startswith(("+++ ", "--- ")) else _DIFF_CSS_CLASSES.get(line[:1], "")


def _make_lexer(language: str) -> Lexer | None:
    """Return what reads a language; a new one each time, since some keep a state."""
    if language not in _languages():  # an unknown one would be looked for among all that is installed
        return None
    # What would be stripped is part of the code.
    return lexers.find_lexer_class_by_name(language)(stripnl=False, ensurenl=False)


@functools.cache
def _languages() -> frozenset[str]:
    return frozenset(alias for _, aliases, _, _ in lexers.get_all_lexers(plugins=False) for alias in aliases)


def _take_until(
    deadline: float, tokens: Iterator[tuple[tuple[str, ...], str]]
) -> Iterator[tuple[tuple[str, ...], str]]:
    for token in tokens:
        yield token
        if time.monotonic() > deadline:
            return


@functools.lru_cache(512)
def _css_class(kind: tuple[str, ...]) -> str:
    return next((name for parent, name in _CSS_CLASSES if kind[: len(parent)] == parent), "")
