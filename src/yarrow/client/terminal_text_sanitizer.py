"""Sanitizing of untrusted text for terminals: control characters are shown instead of obeyed."""

import re

_COLOURS = r"\x1b\[[0-9;:]*m"
_UNSAFE = (
    "\x00-\x08\x0b-\x1f\x7f"  # C0 except tab and newline, and DEL
    "\x80-\x9f"  # C1, which some terminals interpret as escape sequences
    "\u2028\u2029"  # line separators for some programs
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # characters that change the writing direction
    "\u200b-\u200d\u2060-\u2065\ufeff\ufff9-\ufffb"  # zero-width characters
    "\U000e0000-\U000e007f"  # invisible tag characters
)
UNSAFE_CHARACTER = re.compile(f"[{_UNSAFE}]")
"""A character that controls a terminal or is invisible; tab and newline are excluded."""
_UNWANTED = f"{_COLOURS}|\\r\\n|[{_UNSAFE}]"
"""Compiled only when text has an unsafe character: compiling takes as long as importing three modules."""
_CONTROLS = r"\x1b\[[0-9;:]*m|\r\n|[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]"
_JOINERS = "\u200c\u200d"


def sanitize(text: str) -> str:
    """Return text without anything that a terminal obeys, whatever was written before or comes after.

    Colours and the joiners of emoji are removed; other control characters are replaced by a picture or their number.
    """
    return re.sub(_UNWANTED, _show, text) if UNSAFE_CHARACTER.search(text) else text


def strip_controls(text: str) -> str:
    """Return text for a pipe or a file, without control characters that a pager or `cat` passes to a terminal.

    Characters that people use in text are kept: line endings, joiners of emoji, marks of writing direction.
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
        # The Unicode control pictures are in the order of the control characters.
        return chr(0x2400 + ord(part))
    return "\u2421" if part == "\x7f" else f"<U+{ord(part):04X}>"
