"""What is shown of the session that is open: its history, how much of that is printed, and its status."""

import time
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from yarrow.client import unsandboxed_rerun
from yarrow.client.session_format import format_welcome
from yarrow.client.tui import status as status_line
from yarrow.client.tui.history import (
    CallItem,
    HistoryEntry,
    NoteItem,
    NoteKind,
    SessionHistory,
    TextItem,
    add_command,
    add_note,
    reduce_history,
)
from yarrow.client.tui.scrollback import PrintedState, ScreenFrame, next_frame, skip_to_last
from yarrow.client.tui.session_client import OpenSession
from yarrow.client.tui.status import SessionStatus
from yarrow.client.tui.terminal_theme import BackgroundColour, HistoryView, TerminalTheme, is_dark
from yarrow.v1 import agent_pb2 as pb

RESERVED_ROWS = 4
"""Rows that the unfinished block leaves to the status line, the editor and what is above."""

UNLIMITED_ROWS = 1 << 30
"""Rows that are there when nothing is drawn below any more."""


class ViewState:
    """Changes with events and with what the person does; drawing is somebody else's."""

    def __init__(self, theme: TerminalTheme) -> None:
        self.status = SessionStatus()
        self.cwd = ""
        """Where the session works."""
        self.is_replaying = False
        """Whether the run that goes on is still to be told from its beginning."""
        self._theme = theme
        self._history = SessionHistory()
        self._waiting_notes: list[tuple[NoteKind, str]] = []
        """What is to be told once the run was told from its beginning: a few lines."""
        self._printed = PrintedState()
        self._folds_output = self._folds_thinking = True

    def open_session(self, opened: OpenSession) -> None:
        """Show a session from its end on."""
        self._history = opened.history
        self._printed = replace(skip_to_last(self._history), is_begun=self._printed.is_begun)
        self.cwd = opened.state.cwd
        self.is_replaying = bool(opened.state.run_id)
        self._waiting_notes = []
        self.set_state(opened.state)
        if not (self._history.closed or self.is_replaying or self._printed.is_begun):
            self.add_note("command", format_welcome(opened.state))
        for warning in (opened.state.provider_reason, *opened.state.warnings):
            if warning:
                self.add_note("notice", warning)

    def apply_events(self, events: Sequence[pb.AgentEvent]) -> None:
        """Take in what the service tells."""
        self._history = reduce_history(self._history, events)
        if self.is_replaying:
            self.is_replaying = False
            # Before what is being written, which a note within would cut in two.
            notes = tuple(HistoryEntry("", "note", (NoteItem(*note),)) for note in self._waiting_notes)
            self._history = replace(self._history, closed=(*self._history.closed, *notes))
            self._printed = replace(skip_to_last(self._history), is_begun=self._printed.is_begun)
        self.status = status_line.reduce_status(self.status, events, time.monotonic())

    def add_note(self, kind: NoteKind, text: str) -> None:
        """Take in something that the person should know."""
        if self.is_replaying:
            # What is told anew takes the place of what stands here.
            self._waiting_notes.append((kind, text))
        else:
            self._history = add_note(self._history, kind, text)

    def add_command(self, command: str) -> None:
        """Take in a command that the person runs."""
        self._history = add_command(self._history, command)

    def set_background(self, colour: BackgroundColour) -> None:
        """Draw from now on for a background of this colour."""
        self._theme = replace(self._theme, is_dark=is_dark(colour))

    def set_connection(self, problem: str) -> None:
        """Show what is wrong with the connection; an empty text is nothing."""
        self.status = replace(self.status, connection=problem)

    def set_state(self, state: pb.GetStateResponse) -> None:
        """Show how the session is set and what its model can do; what the person waits for goes on."""
        told = status_line.make_status(state, time.monotonic())
        self.status = replace(told, waits_for=self.status.waits_for, waits_since=self.status.waits_since)

    def set_cost(self, state: pb.GetStateResponse) -> None:
        """Show what the session cost so far; all else was told by events, perhaps of a later time."""
        self.status = replace(self.status, cost=state.cost)

    def set_operation(self, doing: str, since: float) -> None:
        """Show what the person waits for; an empty text is nothing."""
        self.status = replace(self.status, waits_for=doing, waits_since=since)

    def toggle_fold(self, *, thinking: bool) -> str:
        """Show from now on in short what was shown whole, or the other way round; return what is told of it."""
        if thinking:
            self._folds_thinking = not self._folds_thinking
        else:
            self._folds_output = not self._folds_output
        what, short = ("thinking", self._folds_thinking) if thinking else ("output of tools", self._folds_output)
        return f"{what} is shown {'in short' if short else 'whole'} from now on"

    def make_frame(self, columns: int, rows: int) -> ScreenFrame:
        """Return what is to be printed now on a terminal of this size, and what is drawn below it."""
        view = HistoryView(columns, self._theme, max(rows - RESERVED_ROWS, 0), self._folds_output, self._folds_thinking)
        return next_frame(self._printed, self._history, view)

    def render_rest(self, columns: int) -> str:
        """Return all that was not printed, as whole lines; it is never asked for twice."""
        view = HistoryView(columns, self._theme, UNLIMITED_ROWS, self._folds_output, self._folds_thinking)
        frame = next_frame(self._printed, self._history, view)
        return frame.scrollback + "".join(f"{line}\n" for line in frame.live)

    def mark_printed(self, frame: ScreenFrame) -> None:
        """Count a frame as printed."""
        self._printed = frame.printed
        self._history = replace(self._history, held=self._history.held[frame.printed_notes :])

    def format_status(self, columns: int) -> str:
        """Return the status line, drawn no wider than `columns`."""
        return status_line.format_line(self.status, columns, self._theme, now=time.monotonic())

    def list_calls(self) -> list[CallItem]:
        """Return the tool calls, oldest first."""
        return [item for entry in self._entries() for item in entry.items if isinstance(item, CallItem)]

    def user_texts(self) -> Iterator[str]:
        """Yield what the person said, oldest first."""
        for entry in self._history.closed:
            if entry.role == "user":
                yield _join_text(entry)

    def find_rerun(self) -> str:
        """Return what asks for the last command to be run outside the sandbox: a line of the user's, or a prompt.

        Empty when no command since the last prompt failed because of the sandbox.
        """
        for entry in reversed(self._entries()):
            if entry.role == "user":
                return ""
            for item in reversed(entry.items):
                if isinstance(item, CallItem) and item.done and unsandboxed_rerun.is_rerun_offered(item.output):
                    line = next(reversed(list(self.user_texts())), "") if not item.arguments_json else ""
                    command = line.removeprefix("!").removeprefix("!")
                    return (
                        f"{unsandboxed_rerun.UNSANDBOXED_BANG}{command}"
                        if command != line
                        else unsandboxed_rerun.RERUN_PROMPT
                    )
        return ""

    def find_last_answer(self) -> str:
        """Return the text of the model's last message that has any; empty when none has."""
        answers = (_join_text(entry) for entry in reversed(self._entries()) if entry.role == "assistant")
        return next(filter(None, answers), "")

    def _entries(self) -> tuple[HistoryEntry, ...]:
        return (*self._history.closed, *([self._history.open] if self._history.open else []))


def _join_text(entry: HistoryEntry) -> str:
    return "".join(item.text for item in entry.items if isinstance(item, TextItem))
