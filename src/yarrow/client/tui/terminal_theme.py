"""Capabilities of a terminal, and rendering of lines with its colours and signs."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from io import BytesIO, TextIOWrapper
from typing import Literal

from msgspec import Struct
from rich.color import ColorSystem
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.theme import Theme

ColourDepth = Literal["none", "16", "256", "true"]
BackgroundColour = tuple[int, int, int]
"""Red, green and blue of a background, 0 to 255 each."""
MIN_COLUMNS = 5
"""Minimum columns of a layout; a prefix that would leave less room is dropped."""
_RICH_THEME = Theme({"markdown.code": "cyan", "markdown.link": "underline", "markdown.link_url": "blue"})
"""Overrides rich's own theme, which sets some words on black, whatever the background of the terminal is."""
_COLOUR_SYSTEMS = {
    "none": None,
    "16": ColorSystem.STANDARD,
    "256": ColorSystem.EIGHT_BIT,
    "true": ColorSystem.TRUECOLOR,
}


class TerminalTheme(Struct, frozen=True):
    """Colours and signs that everything is drawn with."""

    colours: ColourDepth = "none"
    is_dark: bool = True
    has_signs: bool = True
    """True if signs beyond ASCII can be shown."""


class HistoryView(Struct, frozen=True):
    """Size and options with which a history is drawn."""

    columns: int
    theme: TerminalTheme
    rows: int = 24
    """Rows available for the unfinished block."""
    folds_output: bool = True
    folds_thinking: bool = True


def detect_theme(environment: Mapping[str, str], background: BackgroundColour | None, encoding: str) -> TerminalTheme:
    """Return the theme for the environment, the background that the terminal reports, and the encoding."""
    return TerminalTheme(
        _detect_colours(environment), _detect_dark(environment, background), encoding.casefold().startswith("utf")
    )


def is_dark(background: BackgroundColour) -> bool:
    """Return whether light text is readable on a background."""
    red, green, blue = background
    # Weights of the three colours in perceived brightness.
    return 0.299 * red + 0.587 * green + 0.114 * blue < 128


def _detect_colours(environment: Mapping[str, str]) -> ColourDepth:
    term = environment.get("TERM", "")
    if environment.get("NO_COLOR") or term in {"", "dumb"}:
        return "none"
    if environment.get("COLORTERM") in {"truecolor", "24bit"}:
        return "true"
    return "256" if "256color" in term else "16"


def _detect_dark(environment: Mapping[str, str], background: BackgroundColour | None) -> bool:
    if background is not None:
        return is_dark(background)
    # Some terminals export the palette number of their background, after that of their text.
    number = environment.get("COLORFGBG", "").rpartition(";")[2]
    return number not in {"7", "15"}


def render_lines(
    renderable: RenderableType, columns: int, theme: TerminalTheme, *, first: str = "", rest: str = ""
) -> list[str]:
    """Return the lines of a rich renderable, each after a prefix; prefixes contain no wide characters."""
    room = columns - max(len(first), len(rest))
    if room < MIN_COLUMNS:
        first = rest = ""
        room = max(columns, MIN_COLUMNS)
    console = _make_console(theme)
    options = console.options.update(width=room, height=None)
    drawn = [_render_line(segments, theme) for segments in console.render_lines(renderable, options, pad=False)]
    return [f"{rest if index else first}{line}".rstrip() for index, line in enumerate(drawn)]


def paint(text: str, style: str, theme: TerminalTheme) -> str:
    """Return one line of text in a rich style, such as `bold red`."""
    return _apply_style(text, _parse_style(style), theme)


def _render_line(segments: Iterable[Segment], theme: TerminalTheme) -> str:
    """Return a line without its padding, which would be copied with it."""
    parts = [(segment.text, segment.style) for segment in segments if not segment.control]
    while parts and not parts[-1][0].rstrip():
        parts.pop()
    if parts:
        parts[-1] = (parts[-1][0].rstrip(), parts[-1][1])
    return "".join(_apply_style(text, style, theme) if style else text for text, style in parts)


def _apply_style(text: str, style: Style, theme: TerminalTheme) -> str:
    if theme.colours == "none":
        return text
    return style.render(text, color_system=_COLOUR_SYSTEMS[theme.colours])


@lru_cache(maxsize=256)
def _parse_style(style: str) -> Style:
    return Style.parse(style)


@lru_cache(maxsize=4)
def _make_console(theme: TerminalTheme) -> Console:
    return Console(
        # Nothing is written to this file; rich uses its encoding to choose characters.
        file=TextIOWrapper(BytesIO(), encoding="utf-8" if theme.has_signs else "ascii"),
        force_terminal=True,
        color_system="truecolor",
        theme=_RICH_THEME,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
        width=80,
        _environ={},
    )
