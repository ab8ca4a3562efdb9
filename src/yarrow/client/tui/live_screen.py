"""Live part of the screen: unfinished block, status line and editor, below the lines printed permanently."""

import asyncio
import math
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct
from prompt_toolkit.application import Application, in_terminal
from prompt_toolkit.formatted_text import ANSI, split_lines, to_formatted_text
from prompt_toolkit.input import DummyInput, Input
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.key_binding import KeyBindingsBase
from prompt_toolkit.key_binding.key_processor import KeyProcessor
from prompt_toolkit.layout import AnyContainer, FormattedTextControl, HSplit, Layout, UIContent, UIControl, Window
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.styles import Style
from typing_extensions import override

from yarrow.client.tui.keyboard import BACKGROUND_QUERY, Keyboard
from yarrow.client.tui.terminal_theme import BackgroundColour, ColourDepth, TerminalTheme

ESCAPE_SECONDS = 0.03
"""Seconds to wait after a lone Escape for the rest of a longer key sequence."""
SETTLE_SECONDS = 0.3
"""Seconds after a resize during which nothing is printed.

A multiplexer whose window is dragged reports the next size up to a quarter of a second after it rewrapped the lines;
output in between cannot be distinguished from rewrapped lines.
"""
RESERVED_ROWS = 3
"""Rows of the status line, the editor and the empty row above them, which a question does not take."""
MIN_ROWS_FOR_GAP = 8
"""Minimum rows of a screen for an empty row above the status line."""
ESCAPE = "\x1b"
MAX_COPY_BYTES = 74_994
"""Maximum bytes of a copied text: as base64, what many terminals accept in one sequence."""
BEGIN_FRAME = "\x1b[?2026h"
END_FRAME = "\x1b[?2026l"
"""Terminals that know these sequences show nothing half done between the two; others ignore them."""
_DEPTHS: dict[ColourDepth, ColorDepth] = {
    "none": ColorDepth.DEPTH_1_BIT,
    "16": ColorDepth.DEPTH_4_BIT,
    "256": ColorDepth.DEPTH_8_BIT,
    "true": ColorDepth.DEPTH_24_BIT,
}


class Terminal(Struct, frozen=True):
    """Input, output and properties of a terminal."""

    input: Input
    output: Output
    theme: TerminalTheme
    reflows: bool = True
    """True if the terminal rewraps lines when it becomes narrower."""


class ScreenComponents(Struct, frozen=True):
    """Components below the unfinished block, and the callbacks of the screen."""

    status: Callable[[], str]
    """Returns the rendered status line."""
    question: AnyContainer
    """Permission question above the status line; without rows if nothing is asked."""
    question_rows: Callable[[], int]
    """Returns the number of rows that the question wants."""
    editor: AnyContainer
    keys: KeyBindingsBase
    on_key: Callable[[], None]
    """Called before each key is handled."""
    on_return: Callable[[], None]
    """Called when something else had the terminal and the live part is drawn again."""
    colours: ColourDepth
    on_background: Callable[[BackgroundColour], None]
    """Called with the background colour of the terminal, if it reports one."""
    on_resize: Callable[[], None]
    """Called when everything must be laid out for another size."""


class Screen:
    """The live part. Only differences are drawn; permanent lines are printed above it and never changed again."""

    def __init__(self, terminal: Terminal, components: ScreenComponents) -> None:
        self._live: tuple[str, ...] = ()
        self._suspender: asyncio.Task[Any] | None = None
        """Task that uses the terminal while the screen is suspended."""
        self._components = components
        self._app = _Application(self._make_layout(components), terminal, components)
        self._app.key_processor.before_key_press += self._on_key

    def _on_key(self, _keys: KeyProcessor) -> None:
        self._components.on_key()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows of the terminal."""
        size = self._app.output.get_size()
        return size.columns, size.rows

    @property
    def descriptor(self) -> int:
        """File descriptor of the output."""
        return self._app.output.fileno()

    def show(self, scrollback: str, live: tuple[str, ...]) -> bool:
        """Print permanent lines and draw the unfinished block; return False if drawing is not possible now."""
        if not self._app.can_draw:
            return False
        shrinks = len(live) < len(self._live)
        self._live = live
        if scrollback or shrinks:
            self._app.print_above(scrollback)
        else:
            self._app.invalidate()
        return True

    def refresh(self) -> None:
        """Draw what changed."""
        self._app.invalidate()

    def focus(self, container: AnyContainer) -> None:
        """Move the focus to a part of the screen."""
        self._app.layout.focus(container)
        self._app.invalidate()

    def has_focus(self, container: AnyContainer) -> bool:
        """Return whether a part of the screen has the focus."""
        return self._app.layout.has_focus(container)

    def copy(self, text: str) -> int:
        """Copy a text to the clipboard, if the terminal lets programs do so; return the number of characters sent."""
        taken = text.encode("utf-8", "replace")[:MAX_COPY_BYTES].decode("utf-8", "ignore")
        self._app.output.write_raw(f"\x1b]52;c;{b64encode(taken.encode()).decode()}\x07")
        self._app.output.flush()
        return len(taken)

    def end(self, error: BaseException | None = None) -> None:
        """Make `run` return, or raise `error`; a task that uses the terminal is cancelled."""
        self._cancel_suspender()
        if self._app.is_running and not self._app.is_done:
            if error is None:
                self._app.exit()
            else:
                self._app.exit(exception=error)

    async def run(self, typed_ahead: str = "") -> None:
        """Handle keys until `end`, first those typed before. The terminal is restored in any case."""
        self._set_paste_detection(enabled=True)
        if isinstance(self._app.input, Keyboard):
            store_typeahead(self._app.input, self._app.input.parse_keys(typed_ahead.removesuffix(ESCAPE)))
        if isinstance(self._app.input, Keyboard) and self._components.colours != "none":
            self._app.input.on_background = self._components.on_background
            self._app.output.write_raw(BACKGROUND_QUERY)
            self._app.output.flush()
        running = asyncio.ensure_future(self._app.run_async(handle_sigint=False, set_exception_handler=False))
        try:
            await asyncio.wait([running])
        finally:
            # prompt_toolkit waits for the task that uses the terminal, and that task may wait for the user.
            self._cancel_suspender()
            running.cancel()
            await asyncio.wait([running])
        running.result()

    def print_outside(self, text: str) -> None:
        """Print whole lines in place of the live part while it is not drawn."""
        if text:
            self._app.output.write_raw(text.replace("\n", "\r\n"))
            self._app.output.flush()

    @asynccontextmanager
    async def suspend(self, *, raw: bool = False) -> AsyncGenerator[None]:
        """Leave the terminal to something else for a while; `raw` if that is a view of Yarrow, reading single keys."""
        if isinstance(self._app.input, Keyboard):
            self._app.input.stays_raw = raw
        async with in_terminal():
            self._set_paste_detection(enabled=False)
            self._suspender = asyncio.current_task()
            # The pending flush for the last key must not consume the first Escape of the input that follows.
            own, self._app.input = self._app.input, _SilentInput()
            try:
                yield
            finally:
                self._app.input = own
                self._suspender = None
                self._components.on_return()
                self._set_paste_detection(enabled=True)

    def _cancel_suspender(self) -> None:
        if self._suspender is not None:
            self._suspender.cancel()

    def _set_paste_detection(self, *, enabled: bool) -> None:
        if isinstance(self._app.input, Keyboard):
            self._app.input.detects_pastes = enabled

    def _make_layout(self, components: ScreenComponents) -> Layout:
        rows = Window(_LiveControl(lambda: self._live), height=self._live_height, wrap_lines=False)
        apart = Window(height=lambda: Dimension.exact(int(self.size[1] >= MIN_ROWS_FOR_GAP)))
        status = Window(FormattedTextControl(lambda: ANSI(components.status())), height=1)
        return Layout(
            HSplit([rows, apart, components.question, status, components.editor]), focused_element=components.editor
        )

    def _live_height(self) -> Dimension:
        """Return the rows of the unfinished block; a question takes some of them if there are too few."""
        rows = len(self._live)
        if asked := self._components.question_rows():
            rows = max(0, min(rows, self.size[1] - asked - RESERVED_ROWS))
        return Dimension.exact(rows)


class _LiveControl(UIControl):
    """The last lines of the unfinished block, as many as fit."""

    def __init__(self, lines: Callable[[], Sequence[str]]) -> None:
        self._lines = lines

    @override
    def create_content(self, width: int, height: int) -> UIContent:
        lines = self._lines()
        rows = list(split_lines(to_formatted_text(ANSI("\n".join(lines[-height:]))))) if height and lines else []
        return UIContent(rows.__getitem__, len(rows))


class _SilentInput(DummyInput):
    """Input that never receives anything."""

    @property
    def closed(self) -> bool:
        """Always False; a closed input would mean that the terminal is gone."""
        return False


class _Application(Application[None]):
    def __init__(self, layout: Layout, terminal: Terminal, components: ScreenComponents) -> None:
        super().__init__(
            layout,
            key_bindings=components.keys,
            style=Style([("sign", "bold ansicyan")]),
            include_default_pygments_style=False,
            erase_when_done=True,
            color_depth=_DEPTHS[components.colours],
            input=terminal.input,
            output=terminal.output,
            terminal_size_polling_interval=None,
        )
        self.ttimeoutlen = ESCAPE_SECONDS
        self.timeoutlen = ESCAPE_SECONDS
        self._reflows = terminal.reflows
        self._resized = components.on_resize
        self._settling: asyncio.TimerHandle | None = None

    @property
    def can_draw(self) -> bool:
        """True if the application has the terminal and the size is stable."""
        return self.is_running and not self.is_done and not self._running_in_terminal and self._settling is None

    def print_above(self, text: str) -> None:
        """Print whole lines above the live part, in one visible step."""
        self.output.write_raw(BEGIN_FRAME)
        self.renderer.erase()
        self.output.write_raw(text.replace("\n", "\r\n"))
        self._redraw()
        self.output.write_raw(END_FRAME)
        self.output.flush()

    def _on_resize(self) -> None:
        """Redraw; if the terminal rewrapped the live part, erase the added rows too."""
        extra = self._wrapped_rows() if self._reflows else 0
        if extra:
            self.output.cursor_up(extra)
        super()._on_resize()
        if self._settling is not None:
            self._settling.cancel()
        self._settling = asyncio.get_running_loop().call_later(SETTLE_SECONDS, self._settle)

    def _settle(self) -> None:
        self._settling = None
        self._resized()

    def _wrapped_rows(self) -> int:
        """Return the number of rows above the cursor that the terminal added when it became narrower."""
        screen: Any = self.renderer.last_rendered_screen
        if screen is None:
            return 0
        columns = max(self.output.get_size().columns, 1)
        cursor = screen.get_cursor_position(self.layout.current_window)
        added = cursor.x // columns
        for row in range(cursor.y):
            cells = screen.data_buffer.get(row, {})
            width = max((column + 1 for column, cell in cells.items() if cell.char.strip()), default=0)
            added += max(math.ceil(width / columns), 1) - 1
        return added
