"""Runs the terminal UI on a terminal: its input, its output, and what it can show."""

import os
from collections.abc import Mapping
from functools import partial
from typing import TextIO

from prompt_toolkit.data_structures import Size
from prompt_toolkit.output.vt100 import Vt100_Output

from yarrow.client.stub import Stub
from yarrow.client.tui.app import App, Opening
from yarrow.client.tui.keyboard import Keyboard
from yarrow.client.tui.look import choose
from yarrow.client.tui.screen import Terminal

NO_REFLOW = ("linux", "screen")
"""Beginnings of the names of terminals that do not wrap lines anew when they become narrower."""


async def start(stub: Stub, opening: Opening, *, ends: tuple[TextIO, TextIO], environment: Mapping[str, str]) -> str:
    """Run until it is left; return the id of the session that was open last. `ends` are its input and its output."""
    source, out = ends
    name = environment.get("TERM", "")
    terminal = Terminal(
        Keyboard(source),
        Vt100_Output(out, partial(_size, out.fileno()), term=name, enable_cpr=False),
        reflows=not name.startswith(NO_REFLOW) and "XTERM_VERSION" not in environment,
    )
    look = choose(environment, None, out.encoding)
    return await App(stub, opening, terminal=terminal, look=look).run()


def _size(descriptor: int) -> Size:
    try:
        columns, rows = os.get_terminal_size(descriptor)
    except OSError:
        columns, rows = 0, 0
    return Size(rows=rows or 24, columns=columns or 80)
