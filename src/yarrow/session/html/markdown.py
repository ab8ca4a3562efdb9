"""Turns the markdown of a message into HTML that holds no tag, no address and no heading that we did not allow."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from yarrow.session.html.code import Painter, plain_block
from yarrow.session.html.markup import Html, element, inert, text

MAX_MARKDOWN = 40_000
"""Characters of the longest text that is interpreted; a longer one, which may take minutes, is shown as written."""
MAX_NESTING = 100
"""Depth of elements in each other; a text that reaches it is shown as written, for the parser drops what is deeper."""
MAX_ADDRESS = 2_000
"""Characters of the longest address that is linked."""
ABOVE = 3
"""Level of the heading under which the text stands: its own headings are lower and leave no level out."""

_SAFE_ADDRESS = re.compile(r"(?:https?://|mailto:)[^\x00-\x20\x7f]+", re.IGNORECASE)
"""An allowlist: an address that does not begin like one of these, letter by letter, is text."""


class Markdown:
    """A markdown reader that takes secrets out of what it read, too: an escape may have hidden one before."""

    def __init__(self, redact: Callable[[str], str], painter: Painter) -> None:
        options = {"html": False, "breaks": True, "xhtmlOut": False, "maxNesting": MAX_NESTING}
        self._parser = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
        self._parser.validateLink = _is_safe
        self._parser.renderer.rules.update(_RULES | {"fence": self._block, "code_block": self._block})  # type: ignore[attr-defined]
        self._painter = painter
        self._redact = redact

    def html(self, source: str) -> Html:
        """Return the text as HTML; raw HTML in it is text."""
        if len(source) > MAX_MARKDOWN:
            return plain_block(source)
        environment: dict[str, Any] = {}
        tokens = self._parser.parse(inert(source), environment)
        if any(token.level >= MAX_NESTING - 1 for token in tokens):
            return plain_block(source)
        level = ABOVE
        for token in tokens:
            if token.type == "heading_open":
                level = min(ABOVE + int(token.tag[1:]), level + 1, 6)
            if token.type in {"heading_open", "heading_close"}:
                token.tag = f"h{level}"
            self._clean(token)
        rendered = self._parser.renderer.render(tokens, self._parser.options, environment)
        return element("div", Html(rendered), class_="prose")

    def _clean(self, token: Token) -> None:
        token.content = self._redact(token.content)
        # The policy of the page forbids the attribute style, which tables use.
        alignment = str(token.attrs.pop("style", "")).removeprefix("text-align:")
        if alignment:
            token.attrSet("class", alignment)
        for name in ("href", "src"):
            if name in token.attrs:
                token.attrs[name] = self._redact(str(token.attrs[name]))
        for child in token.children or ():
            self._clean(child)

    def _block(self, tokens: Sequence[Token], index: int, *_: object) -> str:
        return self._painter.block(tokens[index].content, language=tokens[index].info.strip().partition(" ")[0])


def _text(tokens: Sequence[Token], index: int, *_: object) -> str:
    return text(tokens[index].content)


def _code(tokens: Sequence[Token], index: int, *_: object) -> str:
    return element("code", text(tokens[index].content))


def _link(tokens: Sequence[Token], index: int, *_: object) -> str:
    address = str(tokens[index].attrs.get("href", ""))
    return f'<a href="{text(address)}" rel="noopener noreferrer">' if _is_safe(address) else "<a>"


def _image(tokens: Sequence[Token], index: int, *_: object) -> str:
    # A picture from elsewhere would tell its owner who reads the page, and when.
    told = f"[image: {tokens[index].content} {tokens[index].attrs.get('src', '')}]"
    return element("span", text(told), class_="note")


def _is_safe(url: str) -> bool:
    return len(url) <= MAX_ADDRESS and _SAFE_ADDRESS.fullmatch(url) is not None


_RULES = {
    "text": _text,
    "code_inline": _code,
    "link_open": _link,
    "image": _image,
}
"""How kinds of tokens are written; the others are tags without any attribute but `start` and `class`."""
