"""State of the view of the open session: its history, the printed part of it, and its status."""

import time
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from yarrow.client.bang_command import RERUN_PROMPT, UNSANDBOXED_BANG, is_rerun_offered
from yarrow.client.permission_texts import PermissionOutcome, shorten_path
from yarrow.client.tui import status as status_line
from yarrow.client.tui.conversation_items import (
    CallItem,
    HistoryEntry,
    NoteItem,
    NoteKind,
    SessionHistory,
    TextItem,
    add_command,
    add_denial,
    add_note,
    reduce_history,
)
from yarrow.client.tui.scrollback import PrintedState, ScreenFrame, next_frame, skip_to_last
from yarrow.client.tui.status import SessionStatus
from yarrow.client.tui.terminal_theme import BackgroundColour, HistoryView, TerminalTheme, is_dark
from yarrow.v1 import agent_pb2 as pb

RESERVED_ROWS = 4
"""Rows that the unfinished block leaves to the status line, the editor and the lines above."""

UNLIMITED_ROWS = 1 << 30
"""Rows available when nothing is drawn below any more."""


class OpenSession(Struct, frozen=True):
    """State and history of a session at the time it is opened."""

    state: pb.GetStateResponse
    history: SessionHistory


class ViewState:
    """Changes with events and with user actions; it is drawn elsewhere."""

    def __init__(self, theme: TerminalTheme) -> None:
        self.status = SessionStatus()
        self.cwd = ""
        """Working directory of the session."""
        self.is_replaying = False
        """True while the current run is yet to be replayed from its beginning."""
        self._theme = theme
        self._history = SessionHistory()
        self._waiting_notes: list[tuple[NoteKind, str]] = []
        """Notes to show after the replay of the run; a few lines."""
        self._printed = PrintedState()
        self._folds_output = self._folds_thinking = True

    def open_session(self, opened: OpenSession) -> None:
        """Show a session, starting with its last entries."""
        self._history = opened.history
        self._printed = replace(skip_to_last(self._history), is_begun=self._printed.is_begun)
        self.cwd = opened.state.cwd
        self.is_replaying = bool(opened.state.run_id)
        self._waiting_notes = []
        self.set_state(opened.state)
        if not (self._history.closed or self.is_replaying or self._printed.is_begun):
            self.add_note("command", _format_welcome(opened.state, self._theme))
        for warning in (opened.state.provider_reason, *opened.state.warnings):
            if warning:
                self.add_note("notice", warning)

    def apply_events(self, events: Sequence[pb.AgentEvent]) -> None:
        """Apply events of the service."""
        self._history = reduce_history(self._history, events)
        if self.is_replaying:
            self.is_replaying = False
            # Above the text being written, which a note within it would split.
            notes = tuple(HistoryEntry("", "note", (NoteItem(*note),)) for note in self._waiting_notes)
            self._history = replace(self._history, closed=(*self._history.closed, *notes))
            self._printed = replace(skip_to_last(self._history), is_begun=self._printed.is_begun)
        self.status = status_line.reduce_status(self.status, events, time.monotonic())

    def add_note(self, kind: NoteKind, text: str) -> None:
        """Add a note for the user."""
        if self.is_replaying:
            # The replay replaces what the history contains now.
            self._waiting_notes.append((kind, text))
        else:
            self._history = add_note(self._history, kind, text)

    def add_outcome(self, outcome: PermissionOutcome) -> None:
        """Show how a permission request was settled."""
        if outcome.is_allowed or self.is_replaying:
            self.add_note("allowed" if outcome.is_allowed else "denied", outcome.text)
        else:
            self._history = add_denial(self._history, outcome.call_id, outcome.text)

    def add_command(self, command: str) -> None:
        """Add a command that the user runs."""
        self._history = add_command(self._history, command)

    def set_background(self, colour: BackgroundColour) -> None:
        """Draw for a background of this colour from now on."""
        self._theme = replace(self._theme, is_dark=is_dark(colour))

    def set_connection(self, problem: str) -> None:
        """Show a problem with the connection; an empty text clears it."""
        self.status = replace(self.status, connection=problem)

    def set_state(self, state: pb.GetStateResponse) -> None:
        """Show the settings of the session and the capabilities of its model; keep the operation shown."""
        told = status_line.make_status(state, time.monotonic())
        self.status = replace(told, waits_for=self.status.waits_for, waits_since=self.status.waits_since)

    def set_cost(self, state: pb.GetStateResponse) -> None:
        """Show the cost of the session so far; events report everything else, and may be more recent."""
        self.status = replace(self.status, cost=state.cost)

    def set_operation(self, doing: str, since: float) -> None:
        """Show the operation that the user waits for; an empty text clears it."""
        self.status = replace(self.status, waits_for=doing, waits_since=since)

    def toggle_fold(self, *, thinking: bool) -> str:
        """Switch between short and full display; return the message about it."""
        if thinking:
            self._folds_thinking = not self._folds_thinking
            return f"Thinking: {'hidden' if self._folds_thinking else 'shown'}"
        self._folds_output = not self._folds_output
        return f"Tool output: {'collapsed' if self._folds_output else 'expanded'}"

    def make_frame(self, columns: int, rows: int) -> ScreenFrame:
        """Return what to print now on a terminal of this size, and what to draw below it."""
        view = HistoryView(columns, self._theme, max(rows - RESERVED_ROWS, 0), self._folds_output, self._folds_thinking)
        return next_frame(self._printed, self._history, view)

    def render_rest(self, columns: int) -> str:
        """Return everything that was not printed, as whole lines; must be called only once."""
        view = HistoryView(columns, self._theme, UNLIMITED_ROWS, self._folds_output, self._folds_thinking)
        frame = next_frame(self._printed, self._history, view)
        return frame.scrollback + "".join(f"{line}\n" for line in frame.live)

    def mark_printed(self, frame: ScreenFrame) -> None:
        """Count a frame as printed."""
        self._printed = frame.printed
        self._history = replace(self._history, held=self._history.held[frame.printed_notes :])

    def format_status(self, columns: int) -> str:
        """Return the status line, at most `columns` wide."""
        return status_line.format_line(self.status, columns, self._theme, now=time.monotonic())

    def list_calls(self) -> list[CallItem]:
        """Return the tool calls, oldest first."""
        return [item for entry in self._entries() for item in entry.items if isinstance(item, CallItem)]

    def user_texts(self) -> Iterator[str]:
        """Yield the user's texts, oldest first."""
        for entry in self._history.closed:
            if entry.role == "user":
                yield _join_text(entry)

    def find_rerun(self) -> str:
        """Return the input that reruns the last command outside the sandbox: a shell line of the user, or a prompt.

        Empty if no command since the last prompt failed because of the sandbox.
        """
        for entry in reversed(self._entries()):
            if entry.role == "user":
                return ""
            for item in reversed(entry.items):
                if isinstance(item, CallItem) and item.done and is_rerun_offered(item.output):
                    line = next(reversed(list(self.user_texts())), "") if not item.arguments_json else ""
                    command = line.removeprefix("!").removeprefix("!")
                    return f"{UNSANDBOXED_BANG}{command}" if command != line else RERUN_PROMPT
        return ""

    def find_last_answer(self) -> str:
        """Return the text of the model's last message that has text; empty if none has."""
        answers = (_join_text(entry) for entry in reversed(self._entries()) if entry.role == "assistant")
        return next(filter(None, answers), "")

    def _entries(self) -> tuple[HistoryEntry, ...]:
        return (*self._history.closed, *([self._history.open] if self._history.open else []))


def _join_text(entry: HistoryEntry) -> str:
    return "".join(item.text for item in entry.items if isinstance(item, TextItem))


def _format_welcome(state: pb.GetStateResponse, theme: TerminalTheme) -> str:
    """Return the first line of an empty session."""
    parts = (f"Yarrow {state.version}", shorten_path(state.cwd), state.provider.model)
    return (" · " if theme.has_signs else " | ").join(filter(None, parts))
