"""The permission question above the editor: it has the keys only after the user moved there, and starts at "No"."""

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

from yarrow.client.permission import (
    MAX_TEXT,
    NO,
    Answered,
    Line,
    agent_reason,
    always,
    call_lines,
    facts,
    for_session,
    storing,
    title,
)
from yarrow.client.tui.guard import Guard
from yarrow.client.tui.look import Look
from yarrow.client.tui.pressed import pressed
from yarrow.client.tui.views.ask_page import Drawn, Page, draw, height
from yarrow.v1 import agent_pb2 as pb

Step = Literal["choose", "always", "why"]
CHOICES = ("Yes", "{session}", "{always}", "No", "No, and tell the agent why…")
NO_CHOICE, ALWAYS_CHOICE, WHY_CHOICE = 3, 2, 4
CONFIRM = ("Yes, always allow it", "No")
WAITS = ("Press Tab to answer · keep typing to send a message", "Press Tab to answer")
EARLY = ("Not yet: stop typing for a second, then press Tab", "Wait 1 s, then Tab")
SELECTS = ("↑↓ or number to select · Enter confirm · Esc back", "↑↓ · Enter confirm · Esc", "↑↓ Enter Esc")
WRITES = ("Enter send · Esc back", "Enter · Esc")
CALL_SHARE = 3
"""The call takes at most one row in so many of the screen."""


class Asked(Struct, frozen=True):
    """A request that waits for an answer, among others."""

    request: pb.PermissionRequest
    number: int = 1
    of: int = 1


class Host(Struct, frozen=True):
    """What a question needs of the screen around it."""

    answer: Callable[[Answered], None]
    enter: Callable[[], None]
    """Gives the keys to the question."""
    leave: Callable[[], None]
    """Gives the keys back to the editor."""
    has_focus: Callable[[], bool]
    screen_rows: Callable[[], int]
    look: Callable[[], Look]
    cwd: Callable[[], str]
    """The directory of the session."""


class Question:
    """The question that is shown; none when nothing waits."""

    def __init__(self, host: Host, guard: Guard | None = None) -> None:
        self.guard = guard or Guard()
        self._host = host
        self._asked: Asked | None = None
        self._step: Step = "choose"
        self._selected = NO_CHOICE
        self._first = 0
        self._seen = 0
        self._text = ""
        self._is_early = False
        """Whether the last key was to move the focus here, too early."""
        self._is_whole = False
        """Whether the window is large enough to read and to answer it."""
        self.container = Window(_Control(self), height=self._height, dont_extend_height=True)

    @property
    def waits(self) -> bool:
        """Whether something is asked."""
        return self._asked is not None

    def show(self, asked: Asked | None) -> None:
        """Show a request, another one, or none. The focus goes back to the editor unless it is the same as before."""
        before, self._asked = self._asked, asked
        if before and asked and before.request.request_id == asked.request.request_id:
            return
        self._begin()
        self._first = 0
        self._is_early = False
        self.guard.hidden()
        self.leave()

    def away(self) -> None:
        """Note that something else had the screen: keys may be on their way that were meant for that."""
        self.guard.hidden()
        self.leave()

    def key(self) -> None:
        """Note that a key was pressed, before it is handled."""
        self._is_early = False
        self.guard.key()

    def enter(self) -> None:
        """Move the focus here, unless keys that are meant for the editor may still be coming."""
        if self.waits and self._is_whole and self.guard.lets_pass:
            self._begin()
            self._host.enter()
        else:
            self._is_early = True

    def leave(self) -> None:
        """Give the focus back to the editor."""
        if self._host.has_focus():
            self._host.leave()

    def back(self) -> bool:
        """Go one step back, or to the editor; return False when the focus is there."""
        if not self._host.has_focus():
            return False
        if self._step == "choose":
            self.leave()
        else:
            self._begin()
        return True

    def scroll(self, pages: int) -> None:
        """Show another part of a long call."""
        self._first = max(0, self._first + pages * max(self._seen, 1))

    def _begin(self) -> None:
        self._step, self._selected, self._text = "choose", NO_CHOICE, ""

    def move(self, to: int) -> None:
        """Select a choice."""
        self._selected = max(0, min(to, len(self._choices()) - 1))

    def confirm(self) -> None:
        """Take the choice that is selected; nothing while it cannot be seen."""
        if not self._is_whole:
            return
        match self._step, self._selected:
            case "why", _:
                self._host.answer(Answered(pb.PERMISSION_ANSWER_NO, self._text.strip()))
            case "always", 0:
                self._host.answer(Answered(pb.PERMISSION_ANSWER_ALWAYS))
            case "always", _:
                self._begin()
            case _, 0:
                self._host.answer(Answered(pb.PERMISSION_ANSWER_ONCE))
            case _, 1:
                self._host.answer(Answered(pb.PERMISSION_ANSWER_SESSION))
            case _, 2:
                self._step, self._selected = "always", 1
            case _, 4:
                self._step = "why"
            case _:
                self._host.answer(NO)

    def typed(self, event: KeyPressEvent) -> None:
        """Take a key that selects nothing: into the message, or back to the editor and there."""
        key = event.key_sequence[-1]
        if self._step == "why":
            self._write(event.data)
        elif key.key == Keys.BracketedPaste or event.data.isprintable():
            self.leave()
            event.key_processor.feed(key, first=True)

    def digit(self, event: KeyPressEvent) -> None:
        """Select the choice of a number; any other digit is typed."""
        number = int(event.data)
        if self._step == "why" or number > len(self._choices()):
            self.typed(event)
        else:
            self.move(number - 1)

    def erase(self) -> None:
        """Take back the last character of the message."""
        self._text = self._text[:-1]

    def _write(self, data: str) -> None:
        self._text = f"{self._text}{' '.join(data.split()) if len(data) > 1 else data}"[:MAX_TEXT]

    def keys_outside(self, *, is_empty: Callable[[], bool], has_menu: Callable[[], bool]) -> KeyBindings:
        """Return the keys that lead here from the editor; `is_empty` and `has_menu` are asked of that."""
        made = KeyBindings()
        waits = Condition(lambda: self.waits and not self._host.has_focus())
        leads = waits & ~Condition(has_menu)
        made.add("tab", filter=leads)(pressed(self.enter))
        made.add("down", filter=leads & Condition(is_empty))(pressed(self.enter))
        made.add("pageup", filter=waits)(pressed(lambda: self.scroll(-1)))
        made.add("pagedown", filter=waits)(pressed(lambda: self.scroll(1)))
        return made

    def keys(self) -> KeyBindings:
        """Return the keys of the question while it has the focus."""
        made = KeyBindings()
        made.add("up")(pressed(lambda: self.move(self._selected - 1)))
        made.add("down")(pressed(lambda: self.move(self._selected + 1)))
        made.add("enter")(pressed(self.confirm))
        made.add("backspace")(pressed(self.erase))
        made.add("pageup")(pressed(lambda: self.scroll(-1)))
        made.add("pagedown")(pressed(lambda: self.scroll(1)))
        for key in ("tab", "s-tab"):
            made.add(key)(pressed(self.leave))
        made.add("c-c")(pressed(self.back))
        for number in range(1, 10):
            made.add(str(number))(self.digit)
        for none in (("c-d",), ("c-j",), ("escape", "enter")):
            made.add(*none)(pressed(lambda: None))
        made.add(Keys.Any)(self.typed)
        made.add(Keys.BracketedPaste)(self.typed)
        return made

    def drawn(self, columns: int, rows: int) -> Drawn:
        """Return the rows of the question."""
        drawn = draw(self._page(), (columns, rows), self._host.look())
        self._first, self._seen, self._is_whole = drawn.first, drawn.seen, drawn.is_whole
        if drawn.is_whole:
            self.guard.drawn()
        else:
            self.guard.hidden()
        return drawn

    def wanted(self, columns: int) -> int:
        """Return how many rows the question wants."""
        return height(self._page(), columns, self._host.look()) if self._asked else 0

    def _height(self) -> Dimension:
        if self._asked is None:
            return Dimension.exact(0)
        wanted = self.wanted(get_app().output.get_size().columns)
        # Where there is no room for it, the status line and the editor stay.
        return Dimension(min=0, max=wanted, preferred=wanted)

    def _choices(self) -> Sequence[str]:
        if self._step == "always":
            return CONFIRM
        return [choice.format(always=always(self._request), session=for_session(self._request)) for choice in CHOICES]

    @property
    def _request(self) -> pb.PermissionRequest:
        return self._asked.request if self._asked else pb.PermissionRequest()

    def _page(self) -> Page:
        asked = self._asked or Asked(self._request)
        has_focus = self._host.has_focus()
        feet = EARLY if self._is_early else WAITS
        if has_focus:
            feet = WRITES if self._step == "why" else SELECTS
        count = f"{asked.number} of {asked.of}" if asked.of > 1 else ""
        confirms = self._step == "always"
        return Page(
            title=f"{always(self._request)}?" if confirms else title(self._request),
            call=_stored(self._request) if confirms else call_lines(self._request),
            facts="" if confirms else facts(self._request, self._host.cwd()),
            choices=self._choices(),
            words="" if confirms else agent_reason(self._request),
            feet=feet,
            is_urgent=not has_focus,
            selected=self._selected if has_focus else None,
            first=self._first,
            typed=self._text if has_focus and self._step == "why" else None,
            count=count,
            call_rows=self._host.screen_rows() // CALL_SHARE,
        )


class _Control(UIControl):
    """Draws a question in the rows that it is given."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._keys = question.keys()

    def is_focusable(self) -> bool:
        """Whether there is anything to answer."""
        return self._question.waits

    def get_key_bindings(self) -> KeyBindings:
        """Return what keys do here."""
        return self._keys

    @override
    def preferred_height(
        self, width: int, max_available_height: int, wrap_lines: bool, get_line_prefix: GetLinePrefixCallable | None
    ) -> int | None:
        """Return how many rows are wanted."""
        return min(self._question.wanted(width), max_available_height)

    def create_content(self, width: int, height: int) -> UIContent:
        """Return what is shown."""
        if not self._question.waits:
            return UIContent()
        drawn = self._question.drawn(width, height)
        rows = [to_formatted_text(ANSI(row)) for row in drawn.rows]
        return UIContent(rows.__getitem__, len(rows), Point(0, drawn.cursor), show_cursor=False)


def _stored(request: pb.PermissionRequest) -> list[Line]:
    return [Line("", line) for line in storing(request).split("\n")]
