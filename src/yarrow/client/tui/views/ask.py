"""The question whether a tool call may run: the whole of it, and the answers, of which none is taken by accident."""

import time
from collections.abc import Callable

from msgspec import Struct
from prompt_toolkit.application import Application
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import FormattedTextControl, Layout, Window
from rich.cells import chop_cells, set_cell_size

from yarrow.client.asking import MAX_TEXT, said, visible
from yarrow.client.tui.pressed import pressed
from yarrow.client.tui.screen import ESCAPE_SECONDS, Terminal
from yarrow.client.tui.suspending import suspends
from yarrow.client.tui.views.listing import FEWEST_COLUMNS, FEWEST_ROWS, TOO_SMALL, either_case, fitting
from yarrow.v1 import agent_pb2 as pb

GUARD_SECONDS = 0.3
"""Keys within this time after the question appeared were meant for something else, and are dropped."""
CHOICES = "y once  s this session  a always  n no  t no, and say why  Up Down scroll"
SHORT_CHOICES = "y s a n t, Up Down"
TYPING = ("Enter sends it, Esc goes back", "Enter sends, Esc")


class Answered(Struct, frozen=True):
    """What a person said."""

    answer: "pb.PermissionAnswer.ValueType"
    text: str = ""
    """With a no: what the model is told."""


NO = Answered(pb.PERMISSION_ANSWER_NO)
_KEYS = {
    "y": Answered(pb.PERMISSION_ANSWER_ONCE),
    "s": Answered(pb.PERMISSION_ANSWER_SESSION),
    "a": Answered(pb.PERMISSION_ANSWER_ALWAYS),
    "n": NO,
    "escape": NO,
    "c-c": NO,
}


class Question:
    """One question on the screen."""

    def __init__(self, request: pb.PermissionRequest, *, now: Callable[[], float] = time.monotonic) -> None:
        self._request = request
        self._now = now
        self._shown_at = now()
        self._first = 0
        self._is_seen = False
        """Whether the window is large enough to show it."""
        self._text: str | None = None
        """What is being typed with a no; None while an answer is chosen."""

    async def run(self, terminal: Terminal) -> Answered:
        """Show it until it is answered. When this is cancelled the screen is given back all the same."""
        app: Application[Answered] = Application(
            Layout(
                Window(FormattedTextControl(lambda: self._drawn(terminal)), always_hide_cursor=True, wrap_lines=True)
            ),
            key_bindings=self._keys(),
            full_screen=True,
            include_default_pygments_style=False,
            input=terminal.input,
            output=terminal.output,
        )
        app.ttimeoutlen = app.timeoutlen = ESCAPE_SECONDS
        self._appear()
        return await app.run_async(handle_sigint=False, set_exception_handler=False)

    def _drawn(self, terminal: Terminal) -> StyleAndTextTuples:
        size = terminal.output.get_size()
        self._is_seen = size.columns >= FEWEST_COLUMNS and size.rows > FEWEST_ROWS
        if not self._is_seen:
            return [("", TOO_SMALL[: size.columns * size.rows])]
        where = " (in a sandbox)" if self._request.contained else ""
        head = f"{visible(self._request.tool)} asks for permission{where}: {visible(self._request.reason)}"
        rows = [("bold", row) for row in _wrapped(head, size.columns)]
        rows += [("", ""), *(("", row) for row in _wrapped(visible(said(self._request)), size.columns))]
        feet = self._feet(size.columns, size.rows)
        room = size.rows - len(feet) - 1
        self._first = max(0, min(self._first, len(rows) - room))
        seen = rows[self._first : self._first + room]
        more = len(rows) - self._first - len(seen)
        drawn: StyleAndTextTuples = [(style, _line(row, size.columns)) for style, row in seen]
        drawn.append(("", "\n" * (room - len(seen))))
        drawn.append(("reverse", _line(f"{more:,} more rows below" if more else "", size.columns)))
        drawn += [("bold", _line(row, size.columns)) for row in feet]
        style, last = drawn[-1][:2]
        drawn[-1] = (style, last.rstrip("\n"))
        return drawn

    def _feet(self, columns: int, rows: int) -> list[str]:
        """Return the rows that say what can be pressed, and the text that is being typed as far as there is room."""
        if self._text is None:
            feet = _wrapped(CHOICES, columns)
            return feet if len(feet) <= rows // 3 else [SHORT_CHOICES]
        typed = _wrapped(f"No: {visible(self._text)}_", columns)
        return [*typed[-max(1, rows // 2 - 1) :], fitting(TYPING, columns)]

    def _keys(self) -> KeyBindings:
        made = KeyBindings()
        ready = Condition(lambda: self._now() - self._shown_at >= GUARD_SECONDS)
        seen = Condition(lambda: self._is_seen)
        typing = Condition(lambda: self._text is not None)
        for key, answered in _KEYS.items():
            # What cannot be read is refused or left, and not allowed.
            open_to = ready & ~typing if answered is NO else ready & ~typing & seen
            for case in either_case(key):
                made.add(case, filter=open_to, eager=key == "escape")(_ending(answered))
        for case in either_case("t"):
            made.add(case, filter=ready & ~typing & seen)(pressed(self._begin_text))
        made.add("escape", filter=typing, eager=True)(pressed(self._drop_text))
        made.add("c-c", filter=typing)(_ending(NO))
        made.add("c-z")(suspends(self._appear))
        made.add("enter", filter=typing)(self._send)
        made.add("backspace", filter=typing)(pressed(self._shorten))
        made.add(Keys.Any, filter=typing)(self._typed)
        made.add(Keys.BracketedPaste, filter=typing)(self._typed)
        for key, rows in {"up": -1, "down": 1, "pageup": -10, "pagedown": 10}.items():
            made.add(key)(pressed(lambda rows=rows: self._scroll(rows)))
        return made

    def _appear(self) -> None:
        self._shown_at = self._now()

    def _scroll(self, rows: int) -> None:
        self._first = max(0, self._first + rows)

    def _begin_text(self) -> None:
        self._text = ""

    def _drop_text(self) -> None:
        self._text = None

    def _shorten(self) -> None:
        self._text = (self._text or "")[:-1]

    def _typed(self, event: KeyPressEvent) -> None:
        self._text = f"{self._text}{' '.join(event.data.split()) if len(event.data) > 1 else event.data}"[:MAX_TEXT]

    def _send(self, event: KeyPressEvent) -> None:
        event.app.exit(result=Answered(pb.PERMISSION_ANSWER_NO, (self._text or "").strip()))


def _ending(answered: Answered) -> Callable[[KeyPressEvent], None]:
    def handle(event: KeyPressEvent) -> None:
        event.app.exit(result=answered)

    return handle


def _wrapped(text: str, columns: int) -> list[str]:
    return [row for line in text.split("\n") for row in (chop_cells(line.expandtabs(4), columns) or [""])]


def _line(text: str, columns: int) -> str:
    return set_cell_size(text, columns) + "\n"
