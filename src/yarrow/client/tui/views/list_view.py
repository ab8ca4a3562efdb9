"""Full-screen lists: a list with a filter, a picker, a session picker and a pager."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from prompt_toolkit.application import Application
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import FormattedTextControl, Layout, Window
from rich.cells import cell_len, chop_cells, set_cell_size

from yarrow.client.front_end import SessionAction, SessionChoice
from yarrow.client.session_descriptions import format_branch, format_parent, format_session, format_title
from yarrow.client.terminal_text_sanitizer import sanitize
from yarrow.client.tui.editor.completion import CompletionItem
from yarrow.client.tui.key_bindings import make_key_handler
from yarrow.client.tui.keyboard import make_suspend_handler
from yarrow.client.tui.live_screen import ESCAPE_SECONDS, Terminal
from yarrow.v1 import agent_pb2 as pb

MIN_COLUMNS = 20
MIN_ROWS = 4
"""Smallest screen on which a list and its keys can be drawn."""
TOO_SMALL = "The window is too small. Enlarge it or press Esc."


class ListRow(Struct, frozen=True):
    """A row of a list; `text` may contain anything, since it is sanitized when it is drawn."""

    text: str
    style: str = ""
    search: str = ""
    """Text that the filter searches besides `text`."""


class ListHint(Struct, frozen=True):
    """Why a key has no effect: shown at the foot until the next key, while the list stays open."""

    text: str


class ListActions(Struct, frozen=True):
    """Actions of keys: each receives the index of the selected row and returns the list's result; None continues."""

    keys: Mapping[str, Callable[[int], Any]]
    """Actions by key name of prompt_toolkit; a `ListHint` is not a result.

    While a filter is typed, only `enter` acts.
    """
    hints: Sequence[str]
    """Descriptions of the keys, longest first: the first that fits is drawn. The last fits `MIN_COLUMNS`."""


class ListView:
    """A list on the screen. `rows` is called for each drawing, so that a key may change the rows."""

    def __init__(
        self, titles: Sequence[str], rows: Callable[[], Sequence[ListRow]], actions: ListActions, *, at: int = 0
    ) -> None:
        """`titles` are ordered from longest to shortest; the first that fits is drawn."""
        self._titles = titles
        self._rows = rows
        self._actions = actions
        self._at = at
        """Index of the selected row among all rows."""
        self._filter = ""
        self._is_filtering = False
        self._first = 0
        self._hint = ""
        self._is_seen = False
        """True if the window is large enough to show the list: actions never apply to invisible rows."""

    async def run(self, terminal: Terminal) -> Any:
        """Show the list until a key returns a result; return None if the user leaves with Esc or Ctrl+C."""
        app: Application[Any] = Application(
            Layout(
                Window(FormattedTextControl(lambda: self._draw(terminal)), always_hide_cursor=True, wrap_lines=True)
            ),
            key_bindings=self._make_bindings(),
            full_screen=True,
            include_default_pygments_style=False,
            input=terminal.input,
            output=terminal.output,
        )
        app.ttimeoutlen = app.timeoutlen = ESCAPE_SECONDS
        return await app.run_async(handle_sigint=False, set_exception_handler=False)

    def _draw(self, terminal: Terminal) -> StyleAndTextTuples:
        size = terminal.output.get_size()
        self._is_seen = size.columns >= MIN_COLUMNS and size.rows >= MIN_ROWS
        if not self._is_seen:
            return [("", TOO_SMALL[: size.columns * size.rows])]
        rows, shown = self._rows(), self._visible_rows()
        room = size.rows - 2
        place = shown.index(self._at) if self._at in shown else 0
        self._first = max(0, min(self._first, place), place - room + 1)
        dots = "…" if terminal.theme.has_signs else "..."
        drawn: StyleAndTextTuples = [
            ("bold", _format_line(self._format_head(len(shown), len(rows), size.columns), size.columns, dots))
        ]
        for index in shown[self._first : self._first + room]:
            row = rows[index]
            style = f"{row.style} reverse" if index == self._at else row.style
            drawn.append((style, _format_line(row.text, size.columns, dots)))
        drawn.append(("", "\n" * (room - len(shown[self._first : self._first + room]))))
        foot = self._hint or choose_fitting(self._actions.hints, size.columns)
        foot = foot if terminal.theme.has_signs else foot.replace(" · ", " | ")
        drawn.append(("italic", _format_line(foot, size.columns, dots).rstrip("\n")))
        return drawn

    def _format_head(self, shown: int, total: int, columns: int) -> str:
        if self._is_filtering or self._filter:
            said = f"/{self._filter}{'_' * self._is_filtering}  {shown} of {total}"
            return choose_fitting((f"{self._titles[0]}  {said}", f"{self._titles[-1]}  {said}", said), columns)
        return choose_fitting(self._titles, columns)

    def _visible_rows(self) -> list[int]:
        """Return the indices of the rows that match the filter."""
        wanted = self._filter.casefold()
        rows = self._rows()
        return [index for index, row in enumerate(rows) if wanted in f"{row.text} {row.search}".casefold()]

    def _move(self, steps: int) -> None:
        shown = self._visible_rows()
        if shown:
            place = shown.index(self._at) if self._at in shown else 0
            self._at = shown[max(0, min(place + steps, len(shown) - 1))]

    def _make_bindings(self) -> KeyBindings:
        made = KeyBindings()
        typing = Condition(lambda: self._is_filtering)
        for key, steps in {
            "up": -1,
            "down": 1,
            "pageup": -10,
            "pagedown": 10,
            "home": -(1 << 30),
            "end": 1 << 30,
        }.items():
            made.add(key)(make_key_handler(lambda steps=steps: self._move(steps)))
        made.add("/", filter=~typing)(make_key_handler(self._begin_filter))
        made.add(Keys.Any, filter=typing)(self._extend_filter)
        made.add("backspace", filter=typing)(make_key_handler(self._shorten_filter))
        made.add("escape", eager=True)(self._leave)
        made.add("c-c")(_exit)
        made.add("c-z")(make_suspend_handler(lambda: None))
        for key, act in self._actions.keys.items():
            for case in list_cases(key):
                made.add(case, filter=typing | ~typing if key == "enter" else ~typing)(self._make_action_handler(act))
        return made

    def _make_action_handler(self, act: Callable[[int], Any]) -> Callable[[KeyPressEvent], None]:
        def handle(event: KeyPressEvent) -> None:
            self._is_filtering = False
            self._hint = ""
            result = act(self._at) if self._is_seen and self._at in self._visible_rows() else None
            if isinstance(result, ListHint):
                self._hint = result.text
            elif result is not None:
                event.app.exit(result=result)

        return handle

    def _begin_filter(self) -> None:
        self._is_filtering = True
        self._filter = ""

    def _extend_filter(self, event: KeyPressEvent) -> None:
        if event.data.isprintable():
            self._filter += event.data
            self._move(0)

    def _shorten_filter(self) -> None:
        self._filter = self._filter[:-1]
        self._move(0)

    def _leave(self, event: KeyPressEvent) -> None:
        if self._is_filtering or self._filter:
            self._is_filtering = False
            self._filter = ""
        else:
            event.app.exit()


def list_cases(key: str) -> Sequence[str]:
    """Return the variants of a key: a letter in lower and in upper case."""
    return (key, key.upper()) if len(key) == 1 and key.isalpha() else (key,)


def choose_fitting(texts: Sequence[str], columns: int) -> str:
    """Return the first text that fits, else the last."""
    return next((text for text in texts if cell_len(text) <= columns), texts[-1])


def _exit(event: KeyPressEvent) -> None:
    event.app.exit()


def _format_line(text: str, columns: int, dots: str) -> str:
    """Return text as one line of exactly `columns` columns; a truncated line ends in dots."""
    line = sanitize(" ".join(text[: 4 * columns].splitlines()))
    if cell_len(line) > columns:
        line = f"{set_cell_size(line, columns - len(dots))}{dots}"
    return f"{set_cell_size(line, columns)}\n"


MAX_ROWS = 100_000
"""Maximum rows shown of a text."""


async def show_text(terminal: Terminal, title: str, text: str) -> None:
    """Show a text until the user leaves; its lines are wrapped at the current width of the terminal."""
    columns = max(terminal.output.get_size().columns, 1)
    rows: list[ListRow] = []
    for line in text.split("\n"):
        rows += [ListRow(piece) for piece in (chop_cells(sanitize(line.expandtabs(4)), columns) or [""])]
        if len(rows) > MAX_ROWS:
            break
    actions = ListActions(
        {"q": lambda _: ""},
        ("Up Down PgUp PgDn Home End · / search · Q or Esc back", "Up Down · / search · Q back", "Up Down / Q"),
    )
    await ListView((title,), lambda: rows[:MAX_ROWS], actions).run(terminal)


MAX_ALIGNED_COLUMNS = 32
"""Maximum columns of the words of a list whose explanations are aligned."""


async def pick(
    terminal: Terminal,
    titles: Sequence[str],
    choices: Sequence[CompletionItem],
    *,
    present: str = "",
    above: Sequence[str] = (),
) -> str | None:
    """Show the choices with the present one selected; return the chosen word, or None.

    `titles` are ordered from longest to shortest; the first that fits is drawn. `above` is the problem with the last
    choice, as lines.
    """
    rows = [ListRow(line, "ansired") for line in above]
    width = min(max((cell_len(choice.word) for choice in choices if choice.help), default=0), MAX_ALIGNED_COLUMNS)
    rows += [
        ListRow(
            f"{choice.word}{' ' * (width - cell_len(choice.word))}  {choice.help}".rstrip(),
            "bold" if choice.word == present else "",
        )
        for choice in choices
    ]
    at = next((index for index, choice in enumerate(choices) if choice.word == present), 0)
    actions = ListActions(
        {"enter": lambda index: choices[index - len(above)].word if index >= len(above) else None},
        ("Enter select · / filter · Esc cancel", "Enter, /, Esc"),
    )
    return await ListView(titles, lambda: rows, actions, at=len(above) + at).run(terminal)


MIN_DATED_COLUMNS = 50
"""Minimum columns of a window that shows ids and times before the titles of sessions."""


async def choose_from_tree(
    terminal: Terminal, nodes: Sequence[pb.SessionTreeNode], present: str
) -> SessionChoice | None:
    """Show the tree with the present session selected; return None if no action was chosen."""
    format_row = format_session if terminal.output.get_size().columns >= MIN_DATED_COLUMNS else format_title
    rows = [
        ListRow(
            f"{format_branch(node)}{format_row(node.session)}{format_parent(node)}",
            "bold" if node.session.session_id == present else "",
            f"{node.session.session_id} {node.session.cwd} {node.session.model}",
        )
        for node in nodes
    ]

    def doing(action: SessionAction) -> Callable[[int], SessionChoice]:
        return lambda index: SessionChoice(action, nodes[index].session.session_id)

    keys = {"enter": doing("resume")}
    letters: dict[str, SessionAction] = {"b": "branch", "f": "fork", "r": "rebase"}
    for letter, action in letters.items():
        keys[letter] = doing(action)
    at = next((index for index, node in enumerate(nodes) if node.session.session_id == present), 0)
    actions = ListActions(keys, ("Enter resume · B branch · F fork · R rebase · / filter · Esc", "Enter B F R / Esc"))
    return await ListView(("Sessions",), lambda: rows, actions, at=at).run(terminal)
