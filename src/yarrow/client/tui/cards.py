"""Draws tool calls as cards: what was asked, how it goes, the end of its output, and changes in colour."""

import re

import msgspec
from rich.text import Text

from yarrow.client.inert import inert
from yarrow.client.json_event import dumps
from yarrow.client.notes import call_note
from yarrow.client.tui.drawing import lines, styled
from yarrow.client.tui.history import CallItem, CallState
from yarrow.client.tui.look import View
from yarrow.client.way_out import for_user, is_offered

TAIL_LINES = 5
"""Lines of a running tool's output that are shown."""
FOLDED_LINES = 10
"""Lines of a finished tool's output, or of its change, that are shown in short."""
UNFOLDED_LINES = 500
"""Lines that are shown at all: more is for /show, which scrolls."""
LONGEST_LINE = 1_000
"""Characters of a line that are shown; what does not fit is not laid out."""
OFFER = "Alt+O: run it outside the sandbox"
SHORT_ID = 6
"""Characters of a call's id, from its end, that /show takes."""

_STATES: dict[CallState, tuple[str, str, str, str]] = {
    # A sign, the same in ASCII, its style, and what is said behind the call.
    "waiting": ("○", "-", "dim", ""),
    "running": ("◐", "*", "yellow", ""),
    "asked": ("?", "?", "bold magenta", " waits for your answer"),
    "done": ("●", "+", "green", ""),
    "failed": ("✗", "x", "bold red", " failed"),
}
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_NUMBER = 4
"""Columns of a line's number."""


def card(call: CallItem, view: View) -> list[str]:
    """Return the lines of a call."""
    head = _head(call, view)
    if not call.done:
        tail = call.tail.strip("\n").split("\n")[-TAIL_LINES:]
        return head + (_output(tail, "dim", view) if call.tail.strip() else [])
    most = FOLDED_LINES if view.folds_output else UNFOLDED_LINES
    if call.diff:
        body, total = _diff(call.diff.rstrip("\n").split("\n"), most, view)
    else:
        texts = for_user(call.output).strip("\n").split("\n") if call.output.strip() else []
        # One line more is shown where the note about it would take a line as well.
        kept = texts if len(texts) == most + 1 else texts[:most]
        body, total = _output(kept, "red" if call.state == "failed" else "dim", view), len(texts) - len(kept)
    if is_offered(call.output):
        body += _output([OFFER], "cyan", view)
    if total > 0:
        dots = "…" if view.look.has_signs else "..."
        body += _output([f"{dots} {total:,} more lines: /show {short_id(call.id)}"], "dim italic", view)
    return head + body


def short_id(call_id: str) -> str:
    """Return the part of a call's id that a person sees and types."""
    return inert(call_id)[-SHORT_ID:]


def _head(call: CallItem, view: View) -> list[str]:
    sign, plain, style, words = _STATES[call.state]
    name = call.name or "tool"
    arguments = _arguments(call)
    note = inert(call_note(name, arguments, call.invalid) if arguments or call.invalid else name).removeprefix("> ")
    name, colon, rest = note.partition(":")
    parts = [(f"{sign if view.look.has_signs else plain} ", style), (name, "bold"), (colon + rest, ""), (words, style)]
    text = Text.assemble(*parts)
    text.overflow = "fold"
    return lines(text, view.columns, view.look)


class _Changed(msgspec.Struct, frozen=True):
    path: str


def _arguments(call: CallItem) -> str:
    """Return the arguments that are to be told: of a change its place alone, since the rest stands below."""
    if not call.diff:
        return call.arguments_json
    try:
        return dumps({"path": msgspec.json.decode(call.arguments_json, type=_Changed).path})
    except (msgspec.DecodeError, RecursionError):
        return call.arguments_json


def _output(texts: list[str], style: str, view: View) -> list[str]:
    bar = "  │ " if view.look.has_signs else "  | "
    drawn: list[str] = []
    for text in texts:
        drawn += lines(_one_line(text, style), view.columns, view.look, first=bar, rest=bar) or [bar.rstrip()]
    return drawn


def _diff(diff: list[str], most: int, view: View) -> tuple[list[str], int]:
    """Return the first lines of a unified diff with their numbers, and how many lines there are besides."""
    drawn: list[str] = []
    before = after = shown = 0
    for index, line in enumerate(diff):
        if shown == most:
            return drawn, len(diff) - index
        if found := _HUNK.match(line):
            before, after = int(found[1]), int(found[2])
            if drawn:
                drawn.append(styled("   …" if view.look.has_signs else "  ...", "dim", view.look))
            continue
        if line.startswith("\\") or not (before or after):
            # The names of the file, which the head says, and a last line without an end.
            continue
        sign, text = line[:1], line[1:]
        number, style = {"-": (before, "red"), "+": (after, "green")}.get(sign, (after, ""))
        before += sign != "+"
        after += sign != "-"
        gutter = f"{number:>{_NUMBER}} {sign.strip() or ' '} "
        drawn += lines(_one_line(text, style), view.columns, view.look, first=gutter, rest=" " * len(gutter)) or [
            gutter.rstrip()
        ]
        shown += 1
    return drawn, 0


def _one_line(text: str, style: str) -> Text:
    text = text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}…"
    return Text(inert(text.expandtabs(4)), style=style, overflow="fold")
