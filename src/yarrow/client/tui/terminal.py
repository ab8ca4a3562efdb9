"""Makes a terminal of its two ends: what is typed, what is drawn, and what it can show."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TextIO

from prompt_toolkit.data_structures import Size
from prompt_toolkit.output.vt100 import Vt100_Output

from yarrow.client.tui.keyboard import Keyboard
from yarrow.client.tui.screen import Terminal
from yarrow.client.tui.terminal_theme import detect_theme
from yarrow.client.tui.wide_chars import separate_cells

SAVE_CURSOR, RESTORE_CURSOR = "\x1b7", "\x1b8"
ERASE_TO_END, ERASE_BELOW = "\x1b[K", "\x1b[B\x1b[2K"
NO_REFLOW_PREFIXES = ("linux", "screen")
"""How the names of terminals begin that do not wrap lines anew when they become narrower; multiplexers do."""


def make_terminal(
    source: TextIO, out: TextIO, environment: Mapping[str, str], *, original_modes: Sequence[Any]
) -> Terminal:
    """Return the terminal that has these two ends; `cooked` are its modes before the program."""
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
        """Write text that was laid out by cells."""
        super().write(separate_cells(data))

    def erase_down(self) -> None:
        """Erase row by row: told to erase all from the first row on, a multiplexer puts it into its history first."""
        self.write_raw(f"{SAVE_CURSOR}{ERASE_TO_END}{ERASE_BELOW * self.get_size().rows}{RESTORE_CURSOR}")


def _measure(descriptor: int) -> Size:
    try:
        columns, rows = os.get_terminal_size(descriptor)
    except OSError:
        columns, rows = 0, 0
    return Size(rows=rows or 24, columns=columns or 80)
