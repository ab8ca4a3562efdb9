"""Permission question in the terminal UI, safe from keys typed for something else."""

import re
import time
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct
from prompt_toolkit.application import get_app
from prompt_toolkit.data_structures import Point
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, to_formatted_text
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import UIContent, UIControl, Window
from prompt_toolkit.layout.controls import GetLinePrefixCallable
from prompt_toolkit.layout.dimension import Dimension
from typing_extensions import override

from yarrow.client.permission_texts import (
    DENIAL,
    MAX_REPLY_CHARACTERS,
    CallLine,
    PermissionReply,
    format_agent_reason,
    format_always_label,
    format_call_lines,
    format_facts,
    format_question_title,
    format_rule,
    format_session_label,
)
from yarrow.client.tui.key_bindings import make_key_handler
from yarrow.client.tui.terminal_theme import TerminalTheme
from yarrow.client.tui.views.permission_layout import QuestionPage, QuestionRows, draw_page, measure_page
from yarrow.v1 import agent_pb2 as pb

QUIET_SECONDS = 1.0
"""Seconds without a key, and seconds on the screen, before a question may receive the focus."""


class FocusGuard:
    """Records when the last key was pressed and since when the question is on the screen."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._key_at = now()
        self._pause = 0.0
        """Seconds between the last key and the previous one."""
        self._drawn_at: float | None = None

    def note_key(self) -> None:
        """Record a key, before it is handled."""
        now = self._now()
        self._pause, self._key_at = now - self._key_at, now

    def note_shown(self) -> None:
        """Record that the question is on the screen."""
        if self._drawn_at is None:
            self._drawn_at = self._now()

    def note_hidden(self) -> None:
        """Record that the question is not on the screen, or that another one is."""
        self._drawn_at = None

    @property
    def allows_focus(self) -> bool:
        """True if the key being handled may move the focus to the question."""
        seen = 0.0 if self._drawn_at is None else self._key_at - self._drawn_at
        return min(self._pause, seen) >= QUIET_SECONDS


Step = Literal["choose", "always", "why"]
CHOICES = ("Yes", "{session}", "{always}", "No", "No, and tell the agent why…")
NO_CHOICE, ALWAYS_CHOICE, WHY_CHOICE = 3, 2, 4
CONFIRM_CHOICES = ("Yes, always allow it", "No")
WAIT_HINTS = ("Press Tab to answer · keep typing to send a message", "Press Tab to answer")
MISPLACED_HINTS = ("To answer, press Tab first", "Press Tab first")
EARLY_HINTS = ("Not yet: stop typing for a second, then press Tab", "Wait 1 s, then Tab")
SELECT_HINTS = ("↑↓ or number to select · Enter confirm · Esc back", "↑↓ · Enter confirm · Esc", "↑↓ Enter Esc")
WRITE_HINTS = ("Enter send · Esc back", "Enter · Esc")
_ANSWER_LIKE = re.compile(r"[0-9yn]", re.IGNORECASE)
"""Texts that a user types into the editor to answer a question."""
CALL_ROWS_DIVISOR = 3
"""Divisor of the rows of the screen; the quotient is the maximum number of rows of the call."""


class QueuedRequest(Struct, frozen=True):
    """A request that waits for an answer, and its number among all that wait."""

    request: pb.PermissionRequest
    number: int = 1
    total: int = 1


class QuestionHost(Struct, frozen=True):
    """Functions of the screen that a question needs."""

    answer: Callable[[PermissionReply], None]
    focus_question: Callable[[], None]
    """Moves the focus to the question."""
    focus_editor: Callable[[], None]
    """Moves the focus back to the editor."""
    has_focus: Callable[[], bool]
    screen_rows: Callable[[], int]
    theme: Callable[[], TerminalTheme]
    cwd: Callable[[], str]
    """Returns the working directory of the session."""


class PermissionQuestion:
    """The question on the screen; empty if no request waits."""

    def __init__(self, host: QuestionHost, guard: FocusGuard | None = None) -> None:
        self.guard = guard or FocusGuard()
        self._host = host
        self._queued: QueuedRequest | None = None
        self._step: Step = "choose"
        self._selected = NO_CHOICE
        self._first = 0
        self._seen_rows = 0
        self._text = ""
        self._wait_hints = WAIT_HINTS
        """Hints shown while the editor has the focus; they explain why the last key did not answer."""
        self._is_whole = False
        """True if the window is large enough to read and answer the question."""
        self.container = Window(_QuestionControl(self), height=self._height, dont_extend_height=True)

    @property
    def is_waiting(self) -> bool:
        """True if a request waits for an answer."""
        return self._queued is not None

    def show(self, asked: QueuedRequest | None) -> None:
        """Show a request, or none. The focus returns to the editor unless the request is the same as before."""
        before, self._queued = self._queued, asked
        if before and asked and before.request.request_id == asked.request.request_id:
            return
        self._reset()
        self._first = 0
        self._wait_hints = WAIT_HINTS
        self.guard.note_hidden()
        self.leave()

    def on_return(self) -> None:
        """Return the focus to the editor after something else had the screen: keys meant for that may still arrive."""
        self.guard.note_hidden()
        self.leave()

    def on_key(self) -> None:
        """Record that a key was pressed, before it is handled."""
        self._wait_hints = WAIT_HINTS
        self.guard.note_key()

    def enter(self) -> None:
        """Move the focus here, unless keys meant for the editor may still arrive."""
        if self.is_waiting and self._is_whole and self.guard.allows_focus:
            self._reset()
            self._host.focus_question()
        else:
            self._wait_hints = EARLY_HINTS

    def explain_misplaced(self, text: str) -> None:
        """Show how to answer if a text sent from the editor looks like an answer; it is sent like any other."""
        if self.is_waiting and _ANSWER_LIKE.fullmatch(text.strip()):
            self._wait_hints = MISPLACED_HINTS

    def leave(self) -> None:
        """Move the focus back to the editor."""
        if self._host.has_focus():
            self._host.focus_editor()

    def go_back(self) -> bool:
        """Go back one step, or to the editor; return False if the question does not have the focus."""
        if not self._host.has_focus():
            return False
        if self._step == "choose":
            self.leave()
        else:
            self._reset()
        return True

    def scroll(self, pages: int) -> None:
        """Scroll a long call by pages."""
        self._first = max(0, self._first + pages * max(self._seen_rows, 1))

    def _reset(self) -> None:
        self._step, self._selected, self._text = "choose", NO_CHOICE, ""

    def select(self, to: int) -> None:
        """Select a choice by its index."""
        self._selected = max(0, min(to, len(self._format_choices()) - 1))

    def confirm(self) -> None:
        """Confirm the selected choice; do nothing while it is not visible."""
        if not self._is_whole:
            return
        match self._step, self._selected:
            case "why", _:
                self._host.answer(PermissionReply(pb.PERMISSION_ANSWER_NO, self._text.strip()))
            case "always", 0:
                self._host.answer(PermissionReply(pb.PERMISSION_ANSWER_ALWAYS))
            case "always", _:
                self._reset()
            case _, 0:
                self._host.answer(PermissionReply(pb.PERMISSION_ANSWER_ONCE))
            case _, 1:
                self._host.answer(PermissionReply(pb.PERMISSION_ANSWER_SESSION))
            case _, 2:
                self._step, self._selected = "always", 1
            case _, 4:
                self._step = "why"
            case _:
                self._host.answer(DENIAL)

    def handle_text(self, event: KeyPressEvent) -> None:
        """Type a key that selects nothing: into the message, or into the editor after moving the focus there."""
        key = event.key_sequence[-1]
        if self._step == "why":
            self._write(event.data)
        elif key.key == Keys.BracketedPaste or event.data.isprintable():
            self.leave()
            event.key_processor.feed(key, first=True)

    def handle_digit(self, event: KeyPressEvent) -> None:
        """Select the choice with this number; any other digit is typed."""
        number = int(event.data)
        if self._step == "why" or number > len(self._format_choices()):
            self.handle_text(event)
        else:
            self.select(number - 1)

    def erase(self) -> None:
        """Delete the last character of the message."""
        self._text = self._text[:-1]

    def _write(self, data: str) -> None:
        self._text = f"{self._text}{' '.join(data.split()) if len(data) > 1 else data}"[:MAX_REPLY_CHARACTERS]

    def make_outside_bindings(self, *, is_empty: Callable[[], bool], has_menu: Callable[[], bool]) -> KeyBindings:
        """Return the keys that lead here from the editor; `is_empty` and `has_menu` describe the editor."""
        made = KeyBindings()
        waits = Condition(lambda: self.is_waiting and not self._host.has_focus())
        leads = waits & ~Condition(has_menu)
        made.add("tab", filter=leads)(make_key_handler(self.enter))
        made.add("down", filter=leads & Condition(is_empty))(make_key_handler(self.enter))
        made.add("pageup", filter=waits)(make_key_handler(lambda: self.scroll(-1)))
        made.add("pagedown", filter=waits)(make_key_handler(lambda: self.scroll(1)))
        return made

    def make_bindings(self) -> KeyBindings:
        """Return the key bindings of the question while it has the focus."""
        made = KeyBindings()
        made.add("up")(make_key_handler(lambda: self.select(self._selected - 1)))
        made.add("down")(make_key_handler(lambda: self.select(self._selected + 1)))
        made.add("enter")(make_key_handler(self.confirm))
        made.add("backspace")(make_key_handler(self.erase))
        made.add("pageup")(make_key_handler(lambda: self.scroll(-1)))
        made.add("pagedown")(make_key_handler(lambda: self.scroll(1)))
        for key in ("tab", "s-tab"):
            made.add(key)(make_key_handler(self.leave))
        made.add("c-c")(make_key_handler(self.go_back))
        for number in range(1, 10):
            made.add(str(number))(self.handle_digit)
        for none in (("c-d",), ("c-j",), ("escape", "enter")):
            made.add(*none)(make_key_handler(lambda: None))
        made.add(Keys.Any)(self.handle_text)
        made.add(Keys.BracketedPaste)(self.handle_text)
        return made

    def draw_rows(self, columns: int, rows: int) -> QuestionRows:
        """Return the rows of the question, and record whether it can be read."""
        drawn = draw_page(self._make_page(), (columns, rows), self._host.theme())
        self._first, self._seen_rows, self._is_whole = drawn.first, drawn.seen, drawn.is_whole
        if drawn.is_whole:
            self.guard.note_shown()
        else:
            self.guard.note_hidden()
        return drawn

    def count_rows(self, columns: int) -> int:
        """Return the number of rows that the question wants."""
        return measure_page(self._make_page(), columns, self._host.theme()) if self._queued else 0

    def _height(self) -> Dimension:
        if self._queued is None:
            return Dimension.exact(0)
        wanted = self.count_rows(get_app().output.get_size().columns)
        # If there is no room for the question, the status line and the editor stay.
        return Dimension(min=0, max=wanted, preferred=wanted)

    def _format_choices(self) -> Sequence[str]:
        if self._step == "always":
            return CONFIRM_CHOICES
        return [
            choice.format(always=format_always_label(self._request), session=format_session_label(self._request))
            for choice in CHOICES
        ]

    @property
    def _request(self) -> pb.PermissionRequest:
        return self._queued.request if self._queued else pb.PermissionRequest()

    def _make_page(self) -> QuestionPage:
        asked = self._queued or QueuedRequest(self._request)
        has_focus = self._host.has_focus()
        feet = self._wait_hints
        if has_focus:
            feet = WRITE_HINTS if self._step == "why" else SELECT_HINTS
        count = f"{asked.number} of {asked.total}" if asked.total > 1 else ""
        confirms = self._step == "always"
        return QuestionPage(
            title=f"{format_always_label(self._request)}?" if confirms else format_question_title(self._request),
            call=_rule_lines(self._request) if confirms else format_call_lines(self._request),
            facts="" if confirms else format_facts(self._request, self._host.cwd()),
            choices=self._format_choices(),
            agent_reason="" if confirms else format_agent_reason(self._request),
            hints=feet,
            heading_hint="" if has_focus else WAIT_HINTS[-1],
            is_urgent=not has_focus,
            selected=self._selected if has_focus else None,
            first=self._first,
            typed=self._text if has_focus and self._step == "why" else None,
            count=count,
            call_rows=self._host.screen_rows() // CALL_ROWS_DIVISOR,
        )


class _QuestionControl(UIControl):
    """Draws a question in the rows available."""

    def __init__(self, question: PermissionQuestion) -> None:
        self._question = question
        self._keys = question.make_bindings()

    def is_focusable(self) -> bool:
        return self._question.is_waiting

    def get_key_bindings(self) -> KeyBindings:
        return self._keys

    @override
    def preferred_height(
        self, width: int, max_available_height: int, wrap_lines: bool, get_line_prefix: GetLinePrefixCallable | None
    ) -> int | None:
        return min(self._question.count_rows(width), max_available_height)

    def create_content(self, width: int, height: int) -> UIContent:
        if not self._question.is_waiting:
            return UIContent()
        drawn = self._question.draw_rows(width, height)
        rows = [to_formatted_text(ANSI(row)) for row in drawn.rows]
        return UIContent(rows.__getitem__, len(rows), Point(0, drawn.cursor), show_cursor=False)


def _rule_lines(request: pb.PermissionRequest) -> list[CallLine]:
    return [CallLine("", line) for line in format_rule(request).split("\n")]
