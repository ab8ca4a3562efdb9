"""Layout of the text in the editor: tabs as spaces, and row counts exact for wide characters."""

import re
from collections.abc import Callable, Iterator

from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout.controls import BufferControl, GetLinePrefixCallable, UIContent
from prompt_toolkit.layout.processors import Processor, TabsProcessor, Transformation, TransformationInput
from prompt_toolkit.layout.screen import Char
from typing_extensions import override

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
