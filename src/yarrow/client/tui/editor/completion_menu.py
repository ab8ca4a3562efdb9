"""The completions under the editor, the chosen one marked."""

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout import FormattedTextControl, Window
from prompt_toolkit.layout.dimension import Dimension
from rich.cells import cell_len, set_cell_size

MAX_MENU_ROWS = 8
"""Rows of the menu; of more completions a part is shown around the chosen one."""


class CompletionMenu:
    """Draws the completions of a buffer."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        control = FormattedTextControl(self._rows)
        self.container = Window(control, height=self._height, dont_extend_height=True)

    def _height(self) -> Dimension:
        state = self._buffer.complete_state
        return Dimension.exact(min(len(state.completions), MAX_MENU_ROWS) if state else 0)

    def _rows(self) -> StyleAndTextTuples:
        state = self._buffer.complete_state
        if state is None:
            return []
        chosen = state.complete_index
        first = max(0, min((chosen or 0) - MAX_MENU_ROWS // 2, len(state.completions) - MAX_MENU_ROWS))
        seen = state.completions[first : first + MAX_MENU_ROWS]
        width = max((cell_len(one.display_text) for one in seen), default=0)
        rows: StyleAndTextTuples = []
        for index, one in enumerate(seen, first):
            style = "reverse" if index == chosen else ""
            rows.append((style, f"  {set_cell_size(one.display_text, width)}"))
            rows.append(("class:dim", f"  {one.display_meta_text}\n"))
        return [*rows[:-1], (rows[-1][0], rows[-1][1].rstrip("\n"))] if rows else []
