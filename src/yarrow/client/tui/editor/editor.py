"""Editor for prompts: text and its layout in rows, completion and input history."""

import re
from collections.abc import Callable, Iterable, Iterator

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import HSplit, Window
from prompt_toolkit.layout.controls import BufferControl, GetLinePrefixCallable, UIContent
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.processors import BeforeInput, Processor, TabsProcessor, Transformation, TransformationInput
from prompt_toolkit.layout.screen import Char
from typing_extensions import override

from yarrow.client.tui.editor.attachments import ImageAttachments, PastePlaceholders
from yarrow.client.tui.editor.completion import (
    COMMAND,
    CompletionMenu,
    CompletionSources,
    InputCompleter,
    completes_while_typing,
)
from yarrow.client.tui.key_bindings import make_key_handler

_LETTER = re.compile("[\\s\\S][\\u0300-\\u036f\\u1ab0-\\u1aff\\u1dc0-\\u1dff\\u20d0-\\u20ff\\ufe20-\\ufe2f]*")


class WrappedControl(BufferControl):
    """Control with wrapped lines. prompt_toolkit divides widths and so counts a row too few for wide characters."""

    @override
    def create_content(self, width: int, height: int, preview_search: bool = False) -> UIContent:
        made = super().create_content(width, height, preview_search)

        def get_line(number: int) -> StyleAndTextTuples:
            return [(style, _CombiningText(text)) for style, text, *_ in made.get_line(number)]

        return _RowContent(get_line, made.line_count, made.cursor_position, made.menu_position, made.show_cursor)


class TabProcessor(TabsProcessor):
    """Shows a tab as spaces; prompt_toolkit itself shows its name."""

    def __init__(self) -> None:
        super().__init__(tabstop=4, char1=" ", char2=" ")

    # The name of the argument is prompt_toolkit's.
    def apply_transformation(self, ti: TransformationInput) -> Transformation:
        """Return a line with spaces instead of tabs; one without tabs stays whole, so that marks stay in place."""
        if any("\t" in text for _, text, *_ in ti.fragments):
            return super().apply_transformation(ti)
        return Transformation(ti.fragments)


class ChosenProcessor(Processor):
    """Highlights the whole text if it is chosen."""

    def __init__(self, is_chosen: Callable[[], bool]) -> None:
        self._is_chosen = is_chosen

    # The name of the argument is prompt_toolkit's.
    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """Return a line unchanged, or with inverted colours."""
        fragments = transformation_input.fragments
        if not self._is_chosen():
            return Transformation(fragments)
        return Transformation([(f"{style} reverse", text) for style, text, *_ in fragments])


class _CombiningText(str):
    """A text that iterates over letters with their combining marks, and over an empty text for each mark.

    prompt_toolkit adds a separate mark to the letter before it, but not in the last column.
    """

    __slots__ = ()

    def __iter__(self) -> Iterator[str]:
        if self.isascii():
            yield from super().__iter__()
            return
        for found in _LETTER.finditer(self):
            yield found[0]
            yield from ("",) * (len(found[0]) - 1)


class _RowContent(UIContent):
    @override
    def get_height_for_line(
        self, lineno: int, width: int, get_line_prefix: GetLinePrefixCallable | None, slice_stop: int | None = None
    ) -> int:
        """Return the rows of a line, or of its part up to and including the character at the cursor."""
        text = "".join(fragment[1] for fragment in self.get_line(lineno))
        return count_rows(text if slice_stop is None else text[: slice_stop + 1], width)


def count_rows(text: str, width: int) -> int:
    """Return how many rows of `width` columns a line takes; at least one."""
    rows, column = 1, 0
    for character in text:
        taken = Char(character).width
        if column + taken > width:
            rows, column = rows + 1, 0
        column += taken
    return rows


MAX_ROWS = 10
"""Maximum rows of the editor; a longer text scrolls in it."""


class Editor:
    """Editor of one text, with completion, placeholders and input history."""

    def __init__(
        self,
        sources: CompletionSources,
        *,
        sign: str,
        attachments: ImageAttachments,
        on_paste: Callable[[str], str] = lambda _: "",
    ) -> None:
        """`on_paste` returns what to insert for a paste with a special meaning; empty for ordinary text."""
        self.buffer = Buffer(
            multiline=True,
            completer=InputCompleter(sources),
            complete_while_typing=Condition(lambda: completes_while_typing(self.buffer.document.text_before_cursor)),
        )
        self.history = InputHistory()
        self.pastes = PastePlaceholders()
        self._attachments = attachments
        self._on_paste = on_paste
        self._accepts_single = False
        """True after Tab until completions arrive: a single one is accepted, since there is nothing to choose."""
        self.buffer.on_completions_changed += self._on_completions
        self.buffer.on_text_changed += self._reset_accept_single
        self._is_chosen = False
        """True if the next input replaces the text."""
        self.buffer.on_text_changed += self._reset_chosen
        self.buffer.on_cursor_position_changed += self._reset_chosen
        marked = ChosenProcessor(lambda: self._is_chosen)
        control = WrappedControl(
            self.buffer, input_processors=[marked, BeforeInput(sign, "class:sign"), TabProcessor()]
        )
        text = Window(control, height=Dimension(min=1, max=MAX_ROWS), wrap_lines=True, dont_extend_height=True)
        self.container = HSplit([text, CompletionMenu(self.buffer).container])

    @property
    def text(self) -> str:
        """The text, with placeholders for long pastes."""
        return self.buffer.text

    @property
    def expanded_text(self) -> str:
        """The text, with its placeholders for pastes expanded."""
        return self.pastes.expand(self.text)

    def take(self) -> str:
        """Return the whole text and clear the editor; empty if there is no text or a menu was closed.

        A command that was selected in the menu counts as the text.
        """
        if (self.close_menu() and not COMMAND.fullmatch(self.text)) or not self.text.strip():
            return ""
        text = self.expanded_text
        self.history.add(text)
        self.clear()
        return text

    def clear(self) -> None:
        """Clear the text."""
        self.buffer.reset()

    def set_text(self, text: str, *, chosen: bool = False) -> None:
        """Set the text and place the cursor at its end; if `chosen`, the next input replaces it."""
        self.buffer.text = text
        self.buffer.cursor_position = len(text)
        self._is_chosen = chosen and bool(text)

    def insert(self, text: str) -> None:
        """Insert a text at the cursor, or in place of a chosen text."""
        if self._is_chosen:
            self.clear()
        self.buffer.insert_text(text)

    def set_history(self, texts: Iterable[str]) -> None:
        """Set the texts that were sent to a session before."""
        self.history.replace_all(texts)

    def close_menu(self) -> bool:
        """Close the completion menu and keep the selected completion; return whether one was selected."""
        state = self.buffer.complete_state
        if state is None:
            return False
        chosen = state.current_completion is not None
        self.buffer.complete_state = None
        return chosen

    def make_bindings(self) -> KeyBindings:
        """Return the key bindings of the editor."""
        made = KeyBindings()
        made.add("c-j")(make_key_handler(lambda: self.insert("\n")))
        made.add("up")(make_key_handler(self._up))
        made.add("down")(make_key_handler(self._down))
        made.add("tab")(make_key_handler(self._complete))
        made.add("s-tab", filter=Condition(lambda: self.buffer.complete_state is not None))(
            make_key_handler(self.buffer.complete_previous)
        )
        made.add("backspace")(make_key_handler(self._backspace))
        made.add(Keys.BracketedPaste)(self._paste)
        made.add(Keys.Any, filter=Condition(lambda: self._is_chosen))(self._replace_chosen)
        return made

    def _up(self) -> None:
        if self.buffer.complete_state:
            self.buffer.complete_previous()
        elif self.buffer.document.cursor_position_row > 0:
            self.buffer.cursor_up()
        elif (text := self.history.go_back(self.text)) is not None:
            self.set_text(text)

    def _down(self) -> None:
        document = self.buffer.document
        if self.buffer.complete_state:
            self.buffer.complete_next()
        elif document.cursor_position_row < document.line_count - 1:
            self.buffer.cursor_down()
        elif (text := self.history.go_forward()) is not None:
            self.set_text(text)

    def _complete(self) -> None:
        if self.buffer.complete_state:
            self.buffer.complete_next()
        else:
            self.buffer.start_completion(select_first=False, insert_common_part=True)
            self._accepts_single = True

    def _on_completions(self, _buffer: Buffer) -> None:
        state = self.buffer.complete_state
        if self._accepts_single and state and len(state.completions) == 1 and state.current_completion is None:
            self.buffer.go_to_completion(0)

    def _reset_accept_single(self, _buffer: Buffer) -> None:
        self._accepts_single = False

    def _reset_chosen(self, _buffer: Buffer) -> None:
        self._is_chosen = False

    def _replace_chosen(self, event: KeyPressEvent) -> None:
        if event.data.isprintable():
            self.insert(event.data)

    def _backspace(self) -> None:
        if self._is_chosen:
            self.clear()
            return
        before = self.buffer.document.text_before_cursor
        # A placeholder is deleted as a whole: a part of it would have no meaning.
        placeholder = self.pastes.placeholder_before(before) or self._attachments.placeholder_before(before)
        self.buffer.delete_before_cursor(len(placeholder) or 1)

    def _paste(self, event: KeyPressEvent) -> None:
        self.insert(self._on_paste(event.data) or self.pastes.shorten(event.data))


MAX_TEXTS = 1_000
"""Maximum texts kept; then the oldest is dropped."""


class InputHistory:
    """The texts sent to one session, oldest first, and the unsent draft."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._at: int | None = None
        """Index of the text that is shown; None for the draft."""
        self._draft = ""

    def replace_all(self, texts: Iterable[str]) -> None:
        """Replace the texts with those of another session; the text in the editor stays."""
        self._texts = []
        self._at = None
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """Add a text that was sent; one that repeats the last is kept once."""
        self._at = None
        self._draft = ""
        if text.strip() and self._texts[-1:] != [text]:
            self._texts.append(text)
            del self._texts[:-MAX_TEXTS]

    def go_back(self, present: str) -> str | None:
        """Return the text before the one that is shown, or None; `present` is the text in the editor."""
        if self._at is None:
            self._draft = present
        at = (len(self._texts) if self._at is None else self._at) - 1
        if at < 0:
            return None
        self._at = at
        return self._texts[at]

    def go_forward(self) -> str | None:
        """Return the text after the one that is shown, after the last one the draft; None if the draft is shown."""
        if self._at is None:
            return None
        self._at += 1
        if self._at < len(self._texts):
            return self._texts[self._at]
        self._at = None
        return self._draft
