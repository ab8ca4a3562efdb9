"""Drawing of a permission question: title, call, choices and keys, in the rows available."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct
from rich.cells import cell_len, chop_cells, get_character_cell_size, set_cell_size

from yarrow.client.permission_texts import CallLine
from yarrow.client.tui.item_lines import PROMPT_SIGN
from yarrow.client.tui.terminal_theme import TerminalTheme, paint

MIN_COLUMNS = 20
MIN_ROWS = 3
"""Smallest area in which a question can be read and answered."""
TOO_SMALL = "The window is too small for a question. Enlarge it."
MIN_CALL_ROWS = 3
_STYLES = {"": "", "-": "red", "+": "green"}
_ASCII = str.maketrans({"─": "-", "│": "|", PROMPT_SIGN[0]: ">", "·": "|", "…": ".", "✓": "+"})
_MAX_LEVELS = 7
"""Number of levels at which a question is reduced."""


class QuestionPage(Struct, frozen=True):
    """Everything that is shown of a question."""

    title: str
    call: Sequence[CallLine]
    facts: str
    """Working directory of the call and the reason for the question, on one line."""
    choices: Sequence[str]
    hints: Sequence[str]
    """Descriptions of the keys, longest first: the first that fits is drawn."""
    heading_hint: str = ""
    """How to reach the question, in its first row if there is room; empty if it has the focus."""
    is_urgent: bool = False
    """True if the hints say how to reach the question at all."""
    selected: int | None = None
    """Index of the selected choice; None while the editor has the focus."""
    first: int = 0
    """First row shown of the call."""
    typed: str | None = None
    """Message being written, which replaces the choices; None if there is none."""
    agent_reason: str = ""
    """The agent's own reason, marked as such."""
    count: str = ""
    """Position among several questions, such as `1 of 2`."""
    call_rows: int = 10
    """Maximum rows of the call; the rest of it scrolls."""


class QuestionRows(NamedTuple):
    """The drawn rows of a question."""

    rows: list[str]
    cursor: int
    """Row of the selected choice."""
    first: int
    """First row shown of the call."""
    seen: int
    """Number of rows shown of the call."""
    is_whole: bool = True
    """True if the question can be answered: its title, its call and a choice are shown."""


class _PageParts(NamedTuple):
    rule: list[str]
    title: list[str]
    facts: list[str]
    words: list[str]
    apart: list[str]
    choices: list[str]
    cursor: int
    foot: list[str]
    below: list[str]

    @property
    def height(self) -> int:
        return sum(len(part) for part in self if isinstance(part, list))


def measure_page(page: QuestionPage, columns: int, theme: TerminalTheme) -> int:
    """Return the number of rows that a question takes without any reduction."""
    layout = _PageLayout(page, columns, theme)
    return layout.make_parts(0).height + min(len(layout.draw_call()), max(MIN_CALL_ROWS, page.call_rows))


def draw_page(page: QuestionPage, size: tuple[int, int], theme: TerminalTheme) -> QuestionRows:
    """Return a question in `size` (columns and rows); the least important parts are left out first."""
    columns, rows = size
    if columns < MIN_COLUMNS or rows < MIN_ROWS:
        return QuestionRows([TOO_SMALL[:columns]] if rows else [], 0, 0, 0, is_whole=False)
    layout = _PageLayout(page, columns, theme)
    call, parts = layout.draw_call(), layout.make_parts(0)
    for level in range(_MAX_LEVELS):
        parts = layout.make_parts(level)
        if rows - parts.height >= min(len(call), MIN_CALL_ROWS if level < _MAX_LEVELS - 2 else 1):
            break
    room = max(rows - parts.height, 1)
    first = max(0, min(page.first, len(call) - room))
    seen = call[first : first + room]
    below = len(call) - first - len(seen)
    if below and room > 1:
        seen[-1] = layout.draw_more(below + 1)
    above = [*parts.rule, *parts.title, *seen, *parts.facts, *parts.words, *parts.apart]
    drawn = [*above, *parts.choices, *parts.foot, *parts.below][:rows]
    return QuestionRows(
        drawn, min(len(above) + parts.cursor, len(drawn) - 1), first, len(seen) - bool(below and room > 1)
    )


class _PageLayout:
    """Lays out one question for one width."""

    def __init__(self, page: QuestionPage, columns: int, theme: TerminalTheme) -> None:
        self._page = page
        self._columns = columns
        self._theme = theme

    def make_parts(self, level: int) -> _PageParts:
        """Return everything but the call; the higher the level, the less."""
        page, width = self._page, self._columns - 2
        title = _fold_text(page.title, width)
        choices, cursor = self._draw_choices()
        if level >= 5:
            title = [self._truncate(page.title, width)]
            choices, cursor = [choices[cursor]], 0
        foot = next((foot for foot in page.hints if cell_len(foot) <= width), page.hints[-1])
        facts = _fold_text(page.facts, width)[:2] if page.facts else []
        return _PageParts(
            [self._draw_rule()] if level < 3 else [],
            [self._row(row, "bold yellow") for row in title],
            [self._row(row, "dim") for row in facts] if level < 2 else [],
            [self._row(row, "italic") for row in _fold_text(page.agent_reason, width)]
            if page.agent_reason and level < 3
            else [],
            [""] if level < 1 else [],
            choices,
            cursor,
            [self._row(self._truncate(foot, width), "cyan" if page.is_urgent else "dim")] if level < 6 else [],
            [""] if level < 1 else [],
        )

    def draw_call(self) -> list[str]:
        """Return all rows of the call."""
        drawn: list[str] = []
        for line in self._page.call:
            text = f"{line.sign} {line.text}" if line.sign else line.text
            rows = fold_keeping_blanks(text.expandtabs(4), self._columns - 4)
            drawn += [self._draw_behind_bar(row, _STYLES[line.sign] or "bold") for row in rows]
        return drawn

    def draw_more(self, below: int) -> str:
        """Return the row that counts the hidden rows below."""
        return self._draw_behind_bar(self._truncate(f"… {below:,} more rows · PgDn", self._columns - 4), "dim")

    def _draw_choices(self) -> tuple[list[str], int]:
        """Return the choices, or the message being written, and the index of the row with the cursor."""
        page = self._page
        if page.typed is not None:
            rows = _fold_text(f"Tell the agent why: {page.typed}_", self._columns - 2)[-3:]
            return [self._row(row, "bold") for row in rows], len(rows) - 1
        drawn: list[str] = []
        for index, choice in enumerate(page.choices):
            is_selected = index == page.selected
            sign = PROMPT_SIGN if is_selected else "  "
            style = "bold cyan" if is_selected else "dim" if page.selected is None else ""
            drawn.append(self._row(sign + self._truncate(f"{index + 1}. {choice}", self._columns - 4), style))
        # Without the focus, No represents all choices if there is room for one row only.
        return drawn, page.selected if page.selected is not None else max(0, len(drawn) - 2)

    def _draw_rule(self) -> str:
        label = f"── Permission{' ' if self._page.count else ''}{self._page.count}"
        hint = f" · {self._page.heading_hint}" if self._page.heading_hint else ""
        if len(label) + len(hint) + 1 >= self._columns:
            hint = ""
        line = "─" * self._columns
        return self._row(f"{label}{hint} {line}"[: self._columns - 1], "cyan" if hint else "dim", margin="")

    def _draw_behind_bar(self, text: str, style: str) -> str:
        return f"{self._row('│', 'dim')} {paint(self._to_ascii(text) if style == 'dim' else text, style, self._theme)}"

    def _row(self, text: str, style: str, *, margin: str = "  ") -> str:
        return margin + paint(self._to_ascii(text), style, self._theme)

    def _truncate(self, text: str, width: int) -> str:
        return text if cell_len(text) <= width else set_cell_size(text, max(width - 1, 0)).rstrip() + "…"

    def _to_ascii(self, text: str) -> str:
        if self._theme.has_signs:
            return text
        return text.replace("↑↓", "Up/Down").translate(_ASCII)


def fold_keeping_blanks(text: str, width: int) -> list[str]:
    """Return a text in rows that keep every blank, broken after blanks unless that leaves half a row or less."""
    rows: list[str] = []
    row, cells = "", 0
    for letter in text:
        wide = get_character_cell_size(letter)
        while row and cells + wide > width:
            blank = row.rfind(" ") + 1
            end = blank if blank > len(row) // 2 else len(row)
            rows.append(row[:end])
            row = row[end:]
            cells = cell_len(row)
        row, cells = row + letter, cells + wide
    return [*rows, row]


def _fold_text(text: str, width: int) -> list[str]:
    """Return a text in rows, broken at blanks where there are any."""
    rows = [""]
    for word in text.split(" "):
        joined = f"{rows[-1]} {word}" if rows[-1] else word
        if cell_len(joined) <= width:
            rows[-1] = joined
        else:
            rows += chop_cells(word, width) or [""]
    return [row for row in rows if row] or [""]
