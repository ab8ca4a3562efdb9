"""Capabilities of a terminal: number of colours, dark or light background, and available signs."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

ColourDepth = Literal["none", "16", "256", "true"]
BackgroundColour = tuple[int, int, int]
"""Red, green and blue of a background, 0 to 255 each."""


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
