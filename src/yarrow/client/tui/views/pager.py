"""A long text on the whole screen: scrolled, and searched line by line."""

from rich.cells import chop_cells

from yarrow.client.sanitizer import sanitize
from yarrow.client.tui.screen import Terminal
from yarrow.client.tui.views.list_view import ListActions, ListRow, ListView

MAX_ROWS = 100_000
"""Rows of a text that are shown."""


async def show_text(terminal: Terminal, title: str, text: str) -> None:
    """Show a text until it is left; its lines are wrapped at the width that the terminal has now."""
    columns = max(terminal.output.get_size().columns, 1)
    rows: list[ListRow] = []
    for line in text.split("\n"):
        rows += [ListRow(piece) for piece in (chop_cells(sanitize(line.expandtabs(4)), columns) or [""])]
        if len(rows) > MAX_ROWS:
            break
    actions = ListActions(
        {"q": lambda _: ""},
        ("Up Down PgUp PgDn Home End  / search  Q or Esc back", "Up Down  / find  Q back", "Up Down / Q"),
    )
    await ListView((title,), lambda: rows[:MAX_ROWS], actions).run(terminal)
