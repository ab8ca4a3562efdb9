"""Draws one item of an entry as lines."""

from typing import Literal, assert_never

from rich.text import Text

from yarrow.client.inert import inert
from yarrow.client.tui import markdown
from yarrow.client.tui.cards import card
from yarrow.client.tui.drawing import lines, styled
from yarrow.client.tui.history import CallItem, Item, NoteItem, NoteKind, TextItem, ThinkingItem
from yarrow.client.tui.look import View

THINKING_LINES = 3
"""Of unfinished thinking that are shown."""
PROMPT_SIGN = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT} "
_NOTES: dict[NoteKind, str] = {
    "notice": "yellow",
    "retry": "yellow",
    "error": "bold red",
    "compaction": "cyan",
    "command": "",
    "allowed": "green",
    "denied": "yellow",
}
_SIGNS: dict[NoteKind, tuple[str, str]] = {"allowed": ("✓ ", "+ "), "denied": ("✗ ", "x ")}
"""Signs in front of notes, and the same in ASCII."""


def draw(item: Item, role: Literal["user", "assistant", "note"], view: View) -> list[str]:
    """Return the lines of an item that `role` said, none wider than the view."""
    match item:
        case TextItem(text) if role == "user":
            return _said(text, view)
        case TextItem(text):
            return markdown.draw(text, view.columns, view.look)
        case ThinkingItem(text, done):
            return _thought(text, view) if done else _thinking(text, view)
        case CallItem():
            return card(item, view)
        case NoteItem(kind, text):
            word = "error: " if kind == "error" else ""
            sign = _SIGNS.get(kind, ("", ""))[not view.look.has_signs]
            text = Text(inert(word + text), style=_NOTES[kind], overflow="fold")
            return lines(text, view.columns, view.look, first=sign, rest=" " * len(sign))
        case _:
            assert_never(item)


def _said(text: str, view: View) -> list[str]:
    sign = PROMPT_SIGN if view.look.has_signs else "> "
    body = Text(inert(text), style="bold", overflow="fold")
    drawn = lines(body, view.columns, view.look, first=sign, rest=" " * len(sign))
    if drawn and drawn[0].startswith(sign):
        drawn[0] = styled(sign, "bold cyan", view.look) + drawn[0].removeprefix(sign)
    return drawn


def _thought(text: str, view: View) -> list[str]:
    text = text.strip()
    if text and view.folds_thinking:
        count = text.count("\n") + 1
        text = f"thinking: {count:,} {'line' if count == 1 else 'lines'}, Ctrl+T shows such"
    return _dim(text, view) if text else []


def _thinking(text: str, view: View) -> list[str]:
    # Of a thought that grows only the end is laid out, so that a frame costs the same however long it is.
    return _dim(text[-THINKING_LINES * view.columns :].strip(), view)[-THINKING_LINES:]


def _dim(text: str, view: View) -> list[str]:
    return lines(Text(inert(text), style="dim italic", overflow="fold"), view.columns, view.look)
