"""Items of the history, including tool calls, as lines of the screen."""

import re
from typing import Literal, assert_never

import msgspec
from rich.text import Text

from yarrow.client.bang_command import is_rerun_offered, strip_instruction
from yarrow.client.json_mode import dumps
from yarrow.client.run_event_notes import NOT_RUN_PREFIX, format_call_note
from yarrow.client.terminal_text_sanitizer import sanitize
from yarrow.client.tui import markdown
from yarrow.client.tui.conversation_items import CallItem, CallState, Item, NoteItem, NoteKind, TextItem, ThinkingItem
from yarrow.client.tui.terminal_theme import HistoryView, paint, render_lines

MAX_THINKING_LINES = 3
"""Maximum lines shown of unfinished thinking."""
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
"""Signs before notes, and their ASCII replacements."""


def draw_item(item: Item, role: Literal["user", "assistant", "note"], view: HistoryView) -> list[str]:
    """Return the lines of an item from `role`, none wider than the view."""
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
        text = f"Thought ({count:,} {'line' if count == 1 else 'lines'}, Ctrl+T to show thinking)"
    return _draw_dim(text, view) if text else []


def _draw_live_thinking(text: str, view: HistoryView) -> list[str]:
    # Only the end of growing thinking is laid out, so that a frame costs the same however long it is.
    return _draw_dim(text[-MAX_THINKING_LINES * view.columns :].strip(), view)[-MAX_THINKING_LINES:]


def _draw_dim(text: str, view: HistoryView) -> list[str]:
    return render_lines(Text(sanitize(text), style="dim italic", overflow="fold"), view.columns, view.theme)


MAX_TAIL_LINES = 5
"""Maximum lines shown of a running tool's output."""
MAX_FOLDED_LINES = 10
"""Maximum lines shown of a finished tool's output, or of its change, when folded."""
MAX_UNFOLDED_LINES = 500
"""Maximum lines shown when unfolded; /show scrolls through the rest."""
MAX_LINE_CHARACTERS = 1_000
"""Maximum characters shown of a line; the rest is not laid out."""
RERUN_KEY_HINT = "Alt+O: run it outside the sandbox"
SHORT_ID_CHARACTERS = 6
"""Characters of a call's id, from its end, that /show accepts."""

_STATES: dict[CallState, tuple[str, str, str, str]] = {
    # Sign, its ASCII replacement, its style, and the words after the call.
    "waiting": ("○", "-", "dim", ""),
    "running": ("◐", "*", "yellow", ""),
    "asked": ("?", "?", "bold magenta", " (waiting for your answer)"),
    "done": ("●", "+", "green", ""),
    "failed": ("✗", "x", "bold red", " failed"),
    "refused": ("✗", "x", "yellow", " not run"),
}
_DENIED = f"{NOT_RUN_PREFIX}the user denied it"
"""Start of the output of a call that the user denied."""
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_NUMBER_COLUMNS = 4
"""Width of a line number in columns."""


def draw_call(call: CallItem, view: HistoryView) -> list[str]:
    """Return the lines of a call."""
    head = _draw_head(call, view)
    if call.verdict or (call.state == "refused" and call.output.startswith(f"{_DENIED}.")):
        return head
    if not call.done:
        tail = call.tail.strip("\n").split("\n")[-MAX_TAIL_LINES:]
        return head + (_draw_output(tail, "dim", view) if call.tail.strip() else [])
    most = MAX_FOLDED_LINES if view.folds_output else MAX_UNFOLDED_LINES
    if call.diff:
        body, total = _draw_diff(call.diff.rstrip("\n").split("\n"), most, view)
    else:
        output = call.output.removeprefix(NOT_RUN_PREFIX) if call.state == "refused" else call.output
        texts = strip_instruction(output).strip("\n").split("\n") if output.strip() else []
        # One more line is shown if the note about it would take a line as well.
        kept = texts if len(texts) == most + 1 else texts[:most]
        body, total = _draw_output(kept, "red" if call.state == "failed" else "dim", view), len(texts) - len(kept)
    if is_rerun_offered(call.output):
        body += _draw_output([RERUN_KEY_HINT], "cyan", view)
    if total > 0:
        dots = "…" if view.theme.has_signs else "..."
        body += _draw_output([f"{dots} {total:,} more lines (/show {shorten_call_id(call.id)})"], "dim italic", view)
    return head + body


def shorten_call_id(call_id: str) -> str:
    """Return the part of a call's id that users see and type."""
    return sanitize(call_id)[-SHORT_ID_CHARACTERS:]


def _draw_head(call: CallItem, view: HistoryView) -> list[str]:
    sign, plain, style, words = _STATES["refused" if call.verdict else call.state]
    sign = f"{sign if view.theme.has_signs else plain} "
    if call.verdict:
        text = Text(sanitize(call.verdict), style=style, overflow="fold")
        return render_lines(text, view.columns, view.theme, first=sign, rest="  ")
    if call.state == "refused" and call.output.startswith(_DENIED):
        words = " denied"
    name = call.name or "tool"
    arguments = _shown_arguments(call)
    note = sanitize(
        format_call_note(name, arguments, call.invalid) if arguments or call.invalid else name
    ).removeprefix("> ")
    name, colon, rest = note.partition(":")
    parts = [(sign, style), (name, "bold"), (colon + rest, ""), (words, style)]
    text = Text.assemble(*parts)
    text.overflow = "fold"
    return render_lines(text, view.columns, view.theme)


class _ChangeArguments(msgspec.Struct, frozen=True):
    path: str


def _shown_arguments(call: CallItem) -> str:
    """Return the arguments to show: only the path of a change, since the diff below shows the rest."""
    if not call.diff:
        return call.arguments_json
    try:
        return dumps({"path": msgspec.json.decode(call.arguments_json, type=_ChangeArguments).path})
    except (msgspec.DecodeError, RecursionError):
        return call.arguments_json


def _draw_output(texts: list[str], style: str, view: HistoryView) -> list[str]:
    bar = "  │ " if view.theme.has_signs else "  | "
    drawn: list[str] = []
    for text in texts:
        drawn += render_lines(_format_line(text, style), view.columns, view.theme, first=bar, rest=bar) or [
            bar.rstrip()
        ]
    return drawn


def _draw_diff(diff: list[str], most: int, view: HistoryView) -> tuple[list[str], int]:
    """Return the first lines of a unified diff with their numbers, and the number of lines left out."""
    drawn: list[str] = []
    before = after = shown = 0
    for index, line in enumerate(diff):
        if shown == most:
            return drawn, len(diff) - index
        if found := _HUNK.match(line):
            before, after = int(found[1]), int(found[2])
            if drawn:
                drawn.append(paint("   …" if view.theme.has_signs else "  ...", "dim", view.theme))
            continue
        if line.startswith("\\") or not (before or after):
            # The names of the file, which the head shows, and the mark of a missing line ending.
            continue
        sign, text = line[:1], line[1:]
        number, style = {"-": (before, "red"), "+": (after, "green")}.get(sign, (after, ""))
        before += sign != "+"
        after += sign != "-"
        gutter = f"{number:>{_NUMBER_COLUMNS}} {sign.strip() or ' '} "
        drawn += render_lines(
            _format_line(text, style), view.columns, view.theme, first=gutter, rest=" " * len(gutter)
        ) or [gutter.rstrip()]
        shown += 1
    return drawn, 0


def _format_line(text: str, style: str) -> Text:
    text = text if len(text) <= MAX_LINE_CHARACTERS else f"{text[:MAX_LINE_CHARACTERS]}…"
    return Text(sanitize(text.expandtabs(4)), style=style, overflow="fold")
