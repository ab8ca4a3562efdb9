"""Renders Markdown as HTML that contains only allowed tags, URLs and headings."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from yarrow.session.html.highlighter import CodeHighlighter, render_plain
from yarrow.session.html.markup import Html, element, escape, reveal_controls

MAX_MARKDOWN_CHARACTERS = 40_000
"""Maximum characters to render, since long text may take minutes; a longer one is shown as source."""
MAX_NESTING = 100
"""Maximum nesting depth; a text that reaches it is shown as source, because the parser drops deeper elements."""
MAX_URL_CHARACTERS = 2_000
"""Maximum characters of a URL that becomes a link."""
PARENT_HEADING_LEVEL = 3
"""Level of the heading above the text; headings in the text are lower and skip no level."""

_SAFE_URL = re.compile(r"(?:https?://|mailto:)[^\x00-\x20\x7f]+", re.IGNORECASE)
"""Allowlist: a URL that does not start with one of these is shown as text."""


class MarkdownRenderer:
    """Markdown renderer that redacts the parsed text, since Markdown escapes may hide a secret."""

    def __init__(self, redact: Callable[[str], str], highlighter: CodeHighlighter) -> None:
        options = {"html": False, "breaks": True, "xhtmlOut": False, "maxNesting": MAX_NESTING}
        self._parser = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
        self._parser.validateLink = _is_safe_url
        rules = _TOKEN_RENDERERS | {"fence": self._render_block, "code_block": self._render_block}
        self._parser.renderer.rules.update(rules)  # type: ignore[attr-defined]
        self._highlighter = highlighter
        self._redact = redact

    def render(self, source: str) -> Html:
        """Return the text as HTML; raw HTML in it is escaped."""
        if len(source) > MAX_MARKDOWN_CHARACTERS:
            return render_plain(source)
        environment: dict[str, Any] = {}
        tokens = self._parser.parse(reveal_controls(source), environment)
        if any(token.level >= MAX_NESTING - 1 for token in tokens):
            return render_plain(source)
        level = PARENT_HEADING_LEVEL
        for token in tokens:
            if token.type == "heading_open":
                level = min(PARENT_HEADING_LEVEL + int(token.tag[1:]), level + 1, 6)
            if token.type in {"heading_open", "heading_close"}:
                token.tag = f"h{level}"
            self._clean_token(token)
        rendered = self._parser.renderer.render(tokens, self._parser.options, environment)
        return element("div", Html(rendered), class_="prose")

    def _clean_token(self, token: Token) -> None:
        token.content = self._redact(token.content)
        # The page's content security policy forbids the style attribute, which tables use.
        alignment = str(token.attrs.pop("style", "")).removeprefix("text-align:")
        if alignment:
            token.attrSet("class", alignment)
        for name in ("href", "src"):
            if name in token.attrs:
                token.attrs[name] = self._redact(str(token.attrs[name]))
        for child in token.children or ():
            self._clean_token(child)

    def _render_block(self, tokens: Sequence[Token], index: int, *_: object) -> str:
        return self._highlighter.render(tokens[index].content, language=tokens[index].info.strip().partition(" ")[0])


def _render_text(tokens: Sequence[Token], index: int, *_: object) -> str:
    return escape(tokens[index].content)


def _render_code(tokens: Sequence[Token], index: int, *_: object) -> str:
    return element("code", escape(tokens[index].content))


def _render_link(tokens: Sequence[Token], index: int, *_: object) -> str:
    address = str(tokens[index].attrs.get("href", ""))
    return f'<a href="{escape(address)}" rel="noopener noreferrer">' if _is_safe_url(address) else "<a>"


def _render_image(tokens: Sequence[Token], index: int, *_: object) -> str:
    # Loading a remote image would reveal to its owner who reads the page, and when.
    told = f"[image: {tokens[index].content} {tokens[index].attrs.get('src', '')}]"
    return element("span", escape(told), class_="note")


def _is_safe_url(url: str) -> bool:
    return len(url) <= MAX_URL_CHARACTERS and _SAFE_URL.fullmatch(url) is not None


_TOKEN_RENDERERS = {
    "text": _render_text,
    "code_inline": _render_code,
    "link_open": _render_link,
    "image": _render_image,
}
"""Renderers by token type; other tokens become tags with no attributes except `start` and `class`."""
