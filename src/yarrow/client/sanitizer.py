"""Makes text of models and tools harmless to a terminal: what would steer it is shown instead of obeyed."""

import re

_COLOURS = r"\x1b\[[0-9;:]*m"
_UNSAFE = (
    "\x00-\x08\x0b-\x1f\x7f"  # C0 without tab and newline, and delete
    "\x80-\x9f"  # C1, which some terminals take for escape sequences
    "\u2028\u2029"  # line ends to some readers
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks that turn the direction of writing
    "\u200b-\u200d\u2060-\u2065\ufeff\ufff9-\ufffb"  # marks without width
    "\U000e0000-\U000e007f"  # letters nobody sees
)
UNSAFE_CHARACTER = re.compile(f"[{_UNSAFE}]")
"""One character that steers a terminal or hides in it; tab and newline are none."""
_UNWANTED = f"{_COLOURS}|\\r\\n|[{_UNSAFE}]"
"""Compiled where there is something of it, which takes as long as importing three modules."""
_CONTROLS = r"\x1b\[[0-9;:]*m|\r\n|[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]"
_JOINERS = "\u200c\u200d"


def sanitize(text: str) -> str:
    """Return text with nothing in it that a terminal obeys, whatever was written before or comes after.

    Colours and the joiners of emoji go; of anything else that steers, a picture or its number is left.
    """
    return re.sub(_UNWANTED, _show, text) if UNSAFE_CHARACTER.search(text) else text


def strip_controls(text: str) -> str:
    """Return text for a pipe or a file, without control characters that a pager or `cat` passes to a terminal.

    What a person writes stays: ends of lines, joiners of emoji, marks of writing direction.
    """
    return re.sub(_CONTROLS, _show_control, text) if UNSAFE_CHARACTER.search(text) else text


def _show_control(found: re.Match[str]) -> str:
    return found.group() if found.group() == "\r\n" else _show(found)


def _show(found: re.Match[str]) -> str:
    part = found.group()
    if len(part) > 1:
        return "\n" if part == "\r\n" else ""
    if part in _JOINERS:
        return ""
    if part < " ":
        # The pictures of control characters stand in their order.
        return chr(0x2400 + ord(part))
    return "\u2421" if part == "\x7f" else f"<U+{ord(part):04X}>"
