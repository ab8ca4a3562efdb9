"""Keeps each character in cells of its own, since terminals differ in which of them they draw as one."""

import re

from prompt_toolkit.utils import get_cwidth

from yarrow.client.sanitizer import UNSAFE_CHARACTER

_FLAG_LETTERS = range(0x1F1E6, 0x1F200)
_SKIN_TONES = "\U0001f3fb-\U0001f3ff"
_ZERO_WIDTH = "\u034f\u200c\u200d\u20e3\ufe00-\ufe0f"
"""Joiners of emoji, what chooses their form, and what puts a key around a digit: they take no cell."""
_MERGED = re.compile(f"[{_ZERO_WIDTH}{_SKIN_TONES}\U0001f1e6-\U0001f1ff\xad]|{UNSAFE_CHARACTER.pattern}")


def separate_cells(text: str) -> str:
    """Return a text, as it is drawn by cells, without what would draw several of its characters as one.

    The columns that it takes stay the same: the cursor stands where it seems to. Control characters stay as well.
    """
    return text if text.isascii() else _MERGED.sub(_replace, text)


def _replace(found: re.Match[str]) -> str:
    character = found[0]
    if ord(character) in _FLAG_LETTERS:
        letter = chr(ord("A") + ord(character) - _FLAG_LETTERS[0])
        return letter.ljust(get_cwidth(character))
    if character == "\xad":
        return "-"
    if character < "\x80":
        return character
    # A colour of skin has cells of its own where it is not drawn over the emoji before it.
    return " " * get_cwidth(character)
