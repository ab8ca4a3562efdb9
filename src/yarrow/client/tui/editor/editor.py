"""The editor at the bottom of the screen."""

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.layout import BufferControl, Window
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.processors import BeforeInput

MAX_ROWS = 10
"""Rows that the editor takes of the screen; a longer text scrolls in it."""


class Editor:
    """A text that is being written."""

    def __init__(self, *, sign: str) -> None:
        self.buffer = Buffer(multiline=True)
        control = BufferControl(self.buffer, input_processors=[BeforeInput(sign, "class:sign")])
        self.container = Window(
            control, height=Dimension(min=1, max=MAX_ROWS), wrap_lines=True, dont_extend_height=True
        )

    @property
    def text(self) -> str:
        """What is written."""
        return self.buffer.text

    def clear(self) -> None:
        """Write anew."""
        self.buffer.reset()

    def set_text(self, text: str) -> None:
        """Put a text in, the cursor at its end."""
        self.buffer.text = text
        self.buffer.cursor_position = len(text)
