"""A terminal in memory: what was drawn, what scrolled out, and the modes that a program left behind."""

from collections.abc import Mapping
from typing import Any

import pyte
from pyte.modes import DECTCEM

ALTERNATE = 1049
PASTES = 2004
_PRIVATE = 5
"""The library keeps private modes shifted by so many bits."""


class Emulator(pyte.HistoryScreen):
    """A screen with an alternate one, which the library lacks; what is drawn there stays out of the history."""

    def __init__(self, columns: int, rows: int) -> None:
        self._main: tuple[Mapping[int, Any], int, int] | None = None
        super().__init__(columns, rows, history=100_000, ratio=0.5)
        self.bell_rung = False
        self.title_set = False

    @property
    def is_alternate(self) -> bool:
        """True if the alternate screen is shown."""
        return self._main is not None

    @property
    def marks_pastes(self) -> bool:
        """True if pastes are to be marked."""
        return PASTES << _PRIVATE in self.mode

    @property
    def shows_cursor(self) -> bool:
        """True if the cursor is visible."""
        return DECTCEM in self.mode

    @property
    def rows(self) -> list[str]:
        """The rows of the screen, without the spaces at their ends."""
        return [row.rstrip() for row in self.display]

    @property
    def scrolled_out(self) -> list[str]:
        """The rows above the screen."""
        lines: list[str] = []
        for line in self.history.top:
            cells = [line[column].data for column in range(max(line, default=-1) + 1)]
            lines.append("".join(cells).rstrip())
        return lines

    def set_mode(self, *modes: int, **more: Any) -> None:
        super().set_mode(*modes, **more)
        if ALTERNATE in modes and more.get("private") and self._main is None:
            self._main = (dict(self.buffer), self.cursor.x, self.cursor.y)
            self.buffer.clear()

    def reset_mode(self, *modes: int, **more: Any) -> None:
        super().reset_mode(*modes, **more)
        if ALTERNATE in modes and more.get("private") and self._main is not None:
            buffer, self.cursor.x, self.cursor.y = self._main
            self._main = None
            self.buffer.clear()
            self.buffer.update(buffer)
            self.dirty.update(range(self.lines))

    def index(self) -> None:
        if self.is_alternate:
            # The library's plain screen scrolls without a history.
            pyte.Screen.index(self)
        else:
            super().index()

    def bell(self, *_: Any) -> None:
        self.bell_rung = True

    def set_title(self, param: str) -> None:
        self.title_set = True
