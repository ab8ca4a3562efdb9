"""Rendering of markdown block by block, and detection of the blocks of a streamed text that are finished."""

import re
from functools import lru_cache
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, ListItem, Markdown, TableElement
from rich.segment import Segment
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from yarrow.client.terminal_text_sanitizer import sanitize
from yarrow.client.tui.terminal_theme import TerminalTheme, render_lines

MAX_BLOCK_LINES = 60
"""Maximum lines of an unfinished block; a longer one is cut at a place where its two parts look like one."""
MAX_BLOCK_CHARACTERS = 16_384
"""Maximum characters of an unfinished block, to bound the time of a frame; a longer one is cut after a line or word."""
_PARTIAL_MARKER = re.compile(r"(?:(?<=\n)|^)[ \t]*(?:\d{1,9}[.)]?|[-+*>|~`#=]+)?[ \t]*\Z")


class BlockCut(Struct, frozen=True):
    """End of the finished part of a text, and the line that must precede the rest to keep its meaning."""

    end: int
    """Offset in characters."""
    opening: str = ""
    """Opening line of the fence that the cut is in; empty outside of fences."""


def find_finished(text: str) -> BlockCut:
    """Return how much of a growing text can be drawn permanently: all blocks but the last one."""
    # A line that may become an item of the block above it does not end that block.
    text = _PARTIAL_MARKER.sub("", text)
    tokens = [token for token in _parser().parse(text) if token.level == 0 and token.map and token.nesting >= 0]
    if not tokens:
        return BlockCut(0)
    last = tokens[-1]
    start, end = last.map or (0, 0)
    if end - start > MAX_BLOCK_LINES:
        return _cut_within(text, last, start)
    cut = _offset(text, start)
    if len(text) - cut > MAX_BLOCK_CHARACTERS:
        break_at = max(
            text.rfind("\n", cut, cut + MAX_BLOCK_CHARACTERS), text.rfind(" ", cut, cut + MAX_BLOCK_CHARACTERS)
        )
        return BlockCut(break_at + 1 if break_at > cut else cut + MAX_BLOCK_CHARACTERS)
    return BlockCut(cut)


def draw_markdown(text: str, columns: int, theme: TerminalTheme) -> list[str]:
    """Return the lines of a piece of markdown, without empty lines around it."""
    if columns < 20:
        # Tables and boxes of that width hold one letter per line.
        return render_lines(Text(sanitize(text), overflow="fold"), columns, theme)
    drawn = render_lines(_AnswerMarkdown(sanitize(text), theme), columns, theme)
    while drawn and not drawn[0]:
        drawn.pop(0)
    while drawn and not drawn[-1]:
        drawn.pop()
    return drawn


class _LeftHeading(Heading):
    """A heading aligned to the left."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        self.text.stylize("bold underline" if self.tag == "h1" else "bold")
        yield Text("")
        yield self.text


class _PlainCodeBlock(CodeBlock):
    """Code in the terminal's own colours and without a frame, so that it can be copied."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip("\n")
        yield Syntax(
            code, self.lexer_name, theme=self.theme, word_wrap=True, background_color="default", padding=(0, 2)
        )


class _BorderlessTable(TableElement):
    """A table without the empty lines of its frame, with long words wrapped instead of truncated."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            if isinstance(table, Table):
                table.show_edge = False
                for column in table.columns:
                    column.overflow = "fold"
            yield table


class _NumberedItem(ListItem):
    """A list item with a dot after its number."""

    @override
    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:
        numeral = f"{number}.".rjust(len(str(last_number)) + 1) + " "
        parts = iter(super().render_number(console, options, number, last_number))
        # An item without text so far has no parts, not even the number.
        for first in parts:
            yield Segment(numeral, first.style) if isinstance(first, Segment) else first
            break
        yield from parts


class _AnswerMarkdown(Markdown):
    elements: ClassVar = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _PlainCodeBlock,
        "code_block": _PlainCodeBlock,
        "list_item_open": _NumberedItem,
        "table_open": _BorderlessTable,
    }

    def __init__(self, text: str, theme: TerminalTheme) -> None:
        code_theme = "ansi_dark" if theme.is_dark else "ansi_light"
        super().__init__(text, code_theme=code_theme, hyperlinks=False)


def _cut_within(text: str, token: Token, start: int) -> BlockCut:
    """Return a cut within a long block: after a line of code, before a list item, or before the block."""
    line_ends = _line_ends(text)
    if token.type == "fence":
        # The line being written may turn out to be the end of the fence.
        complete = len(line_ends) if text.endswith("\n") else len(line_ends) - 1
        opening = text[_offset(text, start) : line_ends[start]]
        return BlockCut(line_ends[complete - 1], opening) if complete > start + 1 else BlockCut(_offset(text, start))
    if token.type in {"bullet_list_open", "ordered_list_open"}:
        items = [
            one.map[0] for one in _parser().parse(text) if one.type == "list_item_open" and one.level == 1 and one.map
        ]
        return BlockCut(_offset(text, max([start, *items[-1:]])))
    return BlockCut(_offset(text, start))


def _line_ends(text: str) -> list[int]:
    """Return the offset of the end of each line, as the parser counts lines."""
    ends = [found.end() for found in re.finditer(r"\r\n|\n|\r", text)]
    return ends if ends and ends[-1] == len(text) else [*ends, len(text)]


def _offset(text: str, line: int) -> int:
    """Return the offset of the start of a line."""
    return _line_ends(text)[line - 1] if line else 0


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    return MarkdownIt().enable("table").enable("strikethrough")
