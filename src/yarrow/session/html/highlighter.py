"""Syntax highlighting of code and diffs, with a few CSS classes known to the style sheet."""

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
"""Maximum characters of a code block to highlight; a longer one is shown plain."""
MAX_PAGE_CHARACTERS = 1_000_000
"""Maximum characters highlighted in one session, which takes seconds; later code is shown plain."""
MAX_LEXER_SECONDS = 2.0
"""Time limit per code block in seconds.

Code that exceeds it is presumed malicious: its rest and all later code is plain.
"""

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
    """Highlights the code of one page within limits on time and size."""

    def __init__(self) -> None:
        self._characters_left = MAX_PAGE_CHARACTERS

    def render(self, code: str, *, language: str = "", filename: str = "") -> Html:
        """Return code as HTML, highlighted if its language is known by name or by the file name's extension."""
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
    """Return a unified diff as HTML, with additions and removals coloured."""
    lines = reveal_controls(diff).split("\n")
    if lines[-1] == "":
        lines.pop()
    parts: list[Html] = []
    for kind, group in itertools.groupby(lines, _diff_css_class):
        content = escape("\n".join(group))
        parts.append(element("span", content, class_=kind) if kind else content)
    return element("pre", element("code", Html("\n".join(parts))), class_="diff")


def render_plain(plain: str) -> Html:
    """Return preformatted text, unchanged."""
    return element("pre", escape(plain))


def _diff_css_class(line: str) -> str:
    return "file" if line.startswith(("+++ ", "--- ")) else _DIFF_CSS_CLASSES.get(line[:1], "")


def _make_lexer(language: str) -> Lexer | None:
    """Return a new lexer for a language, since some lexers keep state."""
    if language not in _languages():  # pygments would search all installed plugins for an unknown one
        return None
    # Keep leading and trailing newlines: they are part of the code.
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
