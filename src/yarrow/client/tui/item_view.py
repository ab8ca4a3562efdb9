"""Draws one item of an entry as lines."""

from typing import Literal, assert_never

from rich.text import Text

from yarrow.client.sanitizer import sanitize
from yarrow.client.tui import markdown
from yarrow.client.tui.history import CallItem, Item, NoteItem, NoteKind, TextItem, ThinkingItem
from yarrow.client.tui.rich_render import paint, render_lines
from yarrow.client.tui.terminal_theme import HistoryView
from yarrow.client.tui.tool_call_view import draw_call

MAX_THINKING_LINES = 3
"""Of unfinished thinking that are shown."""
PROMPT_SIGN = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT} "
_NOTE_STYLES: dict[NoteKind, str] = {
    "notice": "yellow",
    "retry": "yellow",
    "error": "bold red",
    "compaction": "cyan",
    "command": "",
    "allowed": "green",
    "denied": "yellow",
}
_NOTE_SIGNS: dict[NoteKind, tuple[str, str]] = {"allowed": ("✓ ", "+ "), "denied": ("✗ ", "x ")}
"""Signs in front of notes, and the same in ASCII."""


def draw_item(item: Item, role: Literal["user", "assistant", "note"], view: HistoryView) -> list[str]:
    """Return the lines of an item that `role` said, none wider than the view."""
    match item:
        case TextItem(text) if role == "user":
            return _draw_prompt(text, view)
        case TextItem(text):
            return markdown.draw_markdown(text, view.columns, view.theme)
        case ThinkingItem(text, done):
            return _draw_finished_thinking(text, view) if done else _draw_live_thinking(text, view)
        case CallItem():
            return draw_call(item, view)
        case NoteItem(kind, text):
            word = "error: " if kind == "error" else ""
            sign = _NOTE_SIGNS.get(kind, ("", ""))[not view.theme.has_signs]
            text = Text(sanitize(word + text), style=_NOTE_STYLES[kind], overflow="fold")
            return render_lines(text, view.columns, view.theme, first=sign, rest=" " * len(sign))
        case _:
            assert_never(item)


def _draw_prompt(text: str, view: HistoryView) -> list[str]:
    sign = PROMPT_SIGN if view.theme.has_signs else "> "
    body = Text(sanitize(text), style="bold", overflow="fold")
    drawn = render_lines(body, view.columns, view.theme, first=sign, rest=" " * len(sign))
    if drawn and drawn[0].startswith(sign):
        drawn[0] = paint(sign, "bold cyan", view.theme) + drawn[0].removeprefix(sign)
    return drawn


def _draw_finished_thinking(text: str, view: HistoryView) -> list[str]:
    text = text.strip()
    if text and view.folds_thinking:
        count = text.count("\n") + 1
        text = f"thinking: {count:,} {'line' if count == 1 else 'lines'}, Ctrl+T shows such"
    return _draw_dim(text, view) if text else []


def _draw_live_thinking(text: str, view: HistoryView) -> list[str]:
    # Of a thought that grows only the end is laid out, so that a frame costs the same however long it is.
    return _draw_dim(text[-MAX_THINKING_LINES * view.columns :].strip(), view)[-MAX_THINKING_LINES:]


def _draw_dim(text: str, view: HistoryView) -> list[str]:
    return render_lines(Text(sanitize(text), style="dim italic", overflow="fold"), view.columns, view.theme)
