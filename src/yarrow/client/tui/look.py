"""What a terminal can show: how many colours, on a dark or a light ground, and which signs."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

Colours = Literal["none", "16", "256", "true"]
Ground = tuple[int, int, int]
"""Red, green and blue of a background, each 0 to 255."""


class Look(Struct, frozen=True):
    """How everything is drawn."""

    colours: Colours = "none"
    is_dark: bool = True
    has_signs: bool = True
    """Whether signs beyond ASCII can be shown."""


class View(Struct, frozen=True):
    """How a history is looked at."""

    columns: int
    look: Look
    rows: int = 24
    """Rows that the unfinished block may take."""
    folds_output: bool = True
    folds_thinking: bool = True


def choose(environment: Mapping[str, str], background: Ground | None, encoding: str) -> Look:
    """Return the look of a terminal by its environment, what it says of its background, and its encoding."""
    return Look(_colours(environment), _is_dark(environment, background), encoding.casefold().startswith("utf"))


def is_dark(background: Ground) -> bool:
    """Return whether light letters are read on a background."""
    red, green, blue = background
    # The weights by which the eye sums up the three.
    return 0.299 * red + 0.587 * green + 0.114 * blue < 128


def _colours(environment: Mapping[str, str]) -> Colours:
    term = environment.get("TERM", "")
    if environment.get("NO_COLOR") or term in {"", "dumb"}:
        return "none"
    if environment.get("COLORTERM") in {"truecolor", "24bit"}:
        return "true"
    return "256" if "256color" in term else "16"


def _is_dark(environment: Mapping[str, str], background: Ground | None) -> bool:
    if background is not None:
        return is_dark(background)
    # Some terminals name the palette's number of their background, after that of their text.
    number = environment.get("COLORFGBG", "").rpartition(";")[2]
    return number not in {"7", "15"}
