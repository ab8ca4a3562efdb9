"""A long text on the whole screen: scrolled, and searched line by line."""

from rich.cells import chop_cells

from yarrow.client.inert import inert
from yarrow.client.tui.screen import Terminal
from yarrow.client.tui.views.listing import Actions, ListView, Row

MOST_ROWS = 100_000
"""Rows of a text that are shown."""


async def read_through(terminal: Terminal, title: str, text: str) -> None:
    """Show a text until it is left; its lines are wrapped at the width that the terminal has now."""
    columns = max(terminal.output.get_size().columns, 1)
    rows: list[Row] = []
    for line in text.split("\n"):
        rows += [Row(piece) for piece in (chop_cells(inert(line.expandtabs(4)), columns) or [""])]
        if len(rows) > MOST_ROWS:
            break
    actions = Actions(
        {"q": lambda _: ""},
        ("Up Down PgUp PgDn Home End  / search  Q or Esc back", "Up Down  / find  Q back", "Up Down / Q"),
    )
    await ListView((title,), lambda: rows[:MOST_ROWS], actions).run(terminal)
