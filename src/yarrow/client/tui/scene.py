"""What is shown of the session that is open: its history, how much of that is printed, and its status."""

import time
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from yarrow.client import way_out
from yarrow.client.describe import begins
from yarrow.client.tui import status as status_line
from yarrow.client.tui.driver import Opened
from yarrow.client.tui.fold import called, fold, noted
from yarrow.client.tui.frame import Frame, Shown, advance, begin_with
from yarrow.client.tui.history import CallItem, Entry, History, NoteItem, NoteKind, TextItem
from yarrow.client.tui.look import Ground, Look, View, is_dark
from yarrow.client.tui.status import Status
from yarrow.v1 import agent_pb2 as pb

ROWS_BELOW = 4
"""Rows that the unfinished block leaves to the status line, the editor and what is above."""

ENDLESS_ROWS = 1 << 30
"""Rows that are there when nothing is drawn below any more."""


class Scene:
    """Changes with events and with what the person does; drawing is somebody else's."""

    def __init__(self, look: Look) -> None:
        self.status = Status()
        self.cwd = ""
        """Where the session works."""
        self.replays = False
        """Whether the run that goes on is still to be told from its beginning."""
        self._look = look
        self._history = History()
        self._waiting_notes: list[tuple[NoteKind, str]] = []
        """What is to be told once the run was told from its beginning: a few lines."""
        self._shown = Shown()
        self._folds_output = self._folds_thinking = True

    def open(self, opened: Opened) -> None:
        """Show a session from its end on."""
        self._history = opened.history
        self._shown = replace(begin_with(self._history), is_begun=self._shown.is_begun)
        self.cwd = opened.state.cwd
        self.replays = bool(opened.state.run_id)
        self._waiting_notes = []
        self.state(opened.state)
        if not (self._history.closed or self.replays or self._shown.is_begun):
            self.note("command", begins(opened.state))
        for warning in (opened.state.provider_reason, *opened.state.warnings):
            if warning:
                self.note("notice", warning)

    def take(self, events: Sequence[pb.AgentEvent]) -> None:
        """Take in what the service tells."""
        self._history = fold(self._history, events)
        if self.replays:
            self.replays = False
            # Before what is being written, which a note within would cut in two.
            notes = tuple(Entry("", "note", (NoteItem(*note),)) for note in self._waiting_notes)
            self._history = replace(self._history, closed=(*self._history.closed, *notes))
            self._shown = replace(begin_with(self._history), is_begun=self._shown.is_begun)
        self.status = status_line.fold(self.status, events, time.monotonic())

    def note(self, kind: NoteKind, text: str) -> None:
        """Take in something that the person should know."""
        if self.replays:
            # What is told anew takes the place of what stands here.
            self._waiting_notes.append((kind, text))
        else:
            self._history = noted(self._history, kind, text)

    def call(self, command: str) -> None:
        """Take in a command that the person runs."""
        self._history = called(self._history, command)

    def background(self, ground: Ground) -> None:
        """Draw from now on for a background of this colour."""
        self._look = replace(self._look, is_dark=is_dark(ground))

    def connection(self, problem: str) -> None:
        """Show what is wrong with the connection; an empty text is nothing."""
        self.status = replace(self.status, connection=problem)

    def state(self, state: pb.GetStateResponse) -> None:
        """Show how the session is set and what its model can do; what the person waits for goes on."""
        told = status_line.of_state(state, time.monotonic())
        self.status = replace(told, waits_for=self.status.waits_for, waits_since=self.status.waits_since)

    def cost(self, state: pb.GetStateResponse) -> None:
        """Show what the session cost so far; all else was told by events, perhaps of a later time."""
        self.status = replace(self.status, cost=state.cost)

    def waits(self, doing: str, since: float) -> None:
        """Show what the person waits for; an empty text is nothing."""
        self.status = replace(self.status, waits_for=doing, waits_since=since)

    def fold(self, *, thinking: bool) -> str:
        """Show from now on in short what was shown whole, or the other way round; return what is told of it."""
        if thinking:
            self._folds_thinking = not self._folds_thinking
        else:
            self._folds_output = not self._folds_output
        what, short = ("thinking", self._folds_thinking) if thinking else ("output of tools", self._folds_output)
        return f"{what} is shown {'in short' if short else 'whole'} from now on"

    def frame(self, columns: int, rows: int) -> Frame:
        """Return what is to be printed now on a terminal of this size, and what is drawn below it."""
        view = View(columns, self._look, max(rows - ROWS_BELOW, 0), self._folds_output, self._folds_thinking)
        return advance(self._shown, self._history, view)

    def rest(self, columns: int) -> str:
        """Return all that was not printed, as whole lines; it is never asked for twice."""
        view = View(columns, self._look, ENDLESS_ROWS, self._folds_output, self._folds_thinking)
        frame = advance(self._shown, self._history, view)
        return frame.scrollback + "".join(f"{line}\n" for line in frame.live)

    def printed(self, frame: Frame) -> None:
        """Count a frame as printed."""
        self._shown = frame.shown
        self._history = replace(self._history, held=self._history.held[frame.told :])

    def status_line(self, columns: int) -> str:
        """Return the status line, drawn no wider than `columns`."""
        return status_line.line(self.status, columns, self._look, now=time.monotonic())

    def calls(self) -> list[CallItem]:
        """Return the tool calls, oldest first."""
        return [item for entry in self._entries() for item in entry.items if isinstance(item, CallItem)]

    def said(self) -> Iterator[str]:
        """Yield what the person said, oldest first."""
        for entry in self._history.closed:
            if entry.role == "user":
                yield _text(entry)

    def way_out(self) -> str:
        """Return what asks for the last command to be run outside the sandbox: a line of the user's, or a prompt.

        Empty when no command since the last prompt failed because of the sandbox.
        """
        for entry in reversed(self._entries()):
            if entry.role == "user":
                return ""
            for item in reversed(entry.items):
                if isinstance(item, CallItem) and item.done and way_out.is_offered(item.output):
                    line = next(reversed(list(self.said())), "") if not item.arguments_json else ""
                    command = line.removeprefix("!").removeprefix("!")
                    return f"{way_out.SIGN}{command}" if command != line else way_out.PROMPT
        return ""

    def last_answer(self) -> str:
        """Return the text of the model's last message that has any; empty when none has."""
        answers = (_text(entry) for entry in reversed(self._entries()) if entry.role == "assistant")
        return next(filter(None, answers), "")

    def _entries(self) -> tuple[Entry, ...]:
        return (*self._history.closed, *([self._history.open] if self._history.open else []))


def _text(entry: Entry) -> str:
    return "".join(item.text for item in entry.items if isinstance(item, TextItem))
