"""What a terminal can show: how many colours, on a dark or a light ground, and which signs."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

ColourDepth = Literal["none", "16", "256", "true"]
BackgroundColour = tuple[int, int, int]
"""Red, green and blue of a background, each 0 to 255."""


class TerminalTheme(Struct, frozen=True):
    """How everything is drawn."""

    colours: ColourDepth = "none"
    is_dark: bool = True
    has_signs: bool = True
    """Whether signs beyond ASCII can be shown."""


class HistoryView(Struct, frozen=True):
    """How a history is looked at."""

    columns: int
    theme: TerminalTheme
    rows: int = 24
    """Rows that the unfinished block may take."""
    folds_output: bool = True
    folds_thinking: bool = True


def detect_theme(environment: Mapping[str, str], background: BackgroundColour | None, encoding: str) -> TerminalTheme:
    """Return the look of a terminal by its environment, what it says of its background, and its encoding."""
    return TerminalTheme(
        _detect_colours(environment), _detect_dark(environment, background), encoding.casefold().startswith("utf")
    )


def is_dark(background: BackgroundColour) -> bool:
    """Return whether light letters are read on a background."""
    red, green, blue = background
    # The weights by which the eye sums up the three.
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
    # Some terminals name the palette's number of their background, after that of their text.
    number = environment.get("COLORFGBG", "").rpartition(";")[2]
    return number not in {"7", "15"}
