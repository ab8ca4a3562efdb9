"""Draws what rich can lay out as lines: no wider than asked for, with colours and nothing else a terminal obeys."""

from functools import lru_cache
from io import BytesIO, TextIOWrapper
from typing import TYPE_CHECKING

from rich.color import ColorSystem
from rich.console import Console, RenderableType
from rich.style import Style
from rich.theme import Theme

from yarrow.client.tui.look import Look

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.segment import Segment

NARROWEST = 5
"""Columns below which nothing is laid out, and below which a prefix leaves its room to the text."""
_THEME = Theme({"markdown.code": "cyan", "markdown.link": "underline", "markdown.link_url": "blue"})
"""Over the library's own, which sets some words on black, whatever the terminal's ground is."""
_SYSTEMS = {
    "none": None,
    "16": ColorSystem.STANDARD,
    "256": ColorSystem.EIGHT_BIT,
    "true": ColorSystem.TRUECOLOR,
}


def lines(renderable: RenderableType, columns: int, look: Look, *, first: str = "", rest: str = "") -> list[str]:
    """Return the lines of what rich can draw, each behind a prefix; prefixes hold no wide characters."""
    room = columns - max(len(first), len(rest))
    if room < NARROWEST:
        first = rest = ""
        room = max(columns, NARROWEST)
    console = _console(look)
    options = console.options.update(width=room, height=None)
    drawn = [_line(segments, look) for segments in console.render_lines(renderable, options, pad=False)]
    return [f"{rest if index else first}{line}".rstrip() for index, line in enumerate(drawn)]


def styled(text: str, style: str, look: Look) -> str:
    """Return one line of text in a style of rich, such as `bold red`."""
    return _painted(text, _style(style), look)


def _line(segments: "Iterable[Segment]", look: Look) -> str:
    """Return a line without the spaces that fill it up: they would be copied with it."""
    parts = [(segment.text, segment.style) for segment in segments if not segment.control]
    while parts and not parts[-1][0].rstrip():
        parts.pop()
    if parts:
        parts[-1] = (parts[-1][0].rstrip(), parts[-1][1])
    return "".join(_painted(text, style, look) if style else text for text, style in parts)


def _painted(text: str, style: Style, look: Look) -> str:
    if look.colours == "none":
        return text
    return style.render(text, color_system=_SYSTEMS[look.colours])


@lru_cache(maxsize=256)
def _style(style: str) -> Style:
    return Style.parse(style)


@lru_cache(maxsize=4)
def _console(look: Look) -> Console:
    return Console(
        # Nothing is written to it; the library asks for its encoding to choose its signs.
        file=TextIOWrapper(BytesIO(), encoding="utf-8" if look.has_signs else "ascii"),
        force_terminal=True,
        color_system="truecolor",
        theme=_THEME,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
        width=80,
        _environ={},
    )
