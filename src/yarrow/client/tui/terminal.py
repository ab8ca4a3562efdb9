"""Terminal of the UI: input, output, and handling of characters that share or span cells."""

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TextIO

from prompt_toolkit.data_structures import Size
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.utils import get_cwidth

from yarrow.client.terminal_text_sanitizer import UNSAFE_CHARACTER
from yarrow.client.tui.keyboard import Keyboard
from yarrow.client.tui.live_screen import Terminal
from yarrow.client.tui.terminal_theme import detect_theme

SAVE_CURSOR, RESTORE_CURSOR = "\x1b7", "\x1b8"
ERASE_TO_END, ERASE_BELOW = "\x1b[K", "\x1b[B\x1b[2K"
NO_REFLOW_PREFIXES = ("linux", "screen")
"""Prefixes of the names of terminals that do not rewrap lines when they become narrower; multiplexers do."""


def make_terminal(
    source: TextIO, out: TextIO, environment: Mapping[str, str], *, original_modes: Sequence[Any]
) -> Terminal:
    """Return the terminal with this input and output; `original_modes` are its modes before the program."""
    keyboard = Keyboard(source)
    keyboard.original_modes = original_modes
    name = environment.get("TERM", "")
    return Terminal(
        keyboard,
        _CellOutput(out, partial(_measure, out.fileno()), term=name, enable_cpr=False),
        detect_theme(environment, None, out.encoding),
        reflows="TMUX" in environment
        or "STY" in environment
        or (not name.startswith(NO_REFLOW_PREFIXES) and "XTERM_VERSION" not in environment),
    )


class _CellOutput(Vt100_Output):
    def write(self, data: str) -> None:
        """Write text that was laid out in cells."""
        super().write(separate_cells(data))

    def erase_down(self) -> None:
        """Erase row by row: asked to erase all from the first row on, a multiplexer saves it to its history first."""
        self.write_raw(f"{SAVE_CURSOR}{ERASE_TO_END}{ERASE_BELOW * self.get_size().rows}{RESTORE_CURSOR}")


def _measure(descriptor: int) -> Size:
    try:
        columns, rows = os.get_terminal_size(descriptor)
    except OSError:
        columns, rows = 0, 0
    return Size(rows=rows or 24, columns=columns or 80)


_FLAG_LETTERS = range(0x1F1E6, 0x1F200)
_SKIN_TONES = "\U0001f3fb-\U0001f3ff"
_ZERO_WIDTH = "\u034f\u200c\u200d\u20e3\ufe00-\ufe0f"
"""Joiners of emoji, variation selectors and the keycap around a digit: they take no cell."""
_MERGED = re.compile(f"[{_ZERO_WIDTH}{_SKIN_TONES}\U0001f1e6-\U0001f1ff\xad]|{UNSAFE_CHARACTER.pattern}")


def separate_cells(text: str) -> str:
    """Return a text, as it is drawn in cells, without anything that would draw several of its characters as one.

    Its width in columns stays the same, so that the cursor is where it seems to be. Control characters are kept.
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
    # A skin tone has cells of its own if it is not drawn over the emoji before it.
    return " " * get_cwidth(character)
