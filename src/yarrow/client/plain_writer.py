"""Keeps answer, thinking and notes apart on a terminal that shows them all, and whole where each has its own file."""

from yarrow.client.sanitizer import sanitize, strip_controls
from yarrow.client.sink import Sink

_DIM, _UNDIM = "\x1b[2m", "\x1b[22m"


class PlainWriter:
    """Standard output for the answer, standard error for everything else.

    `raw` passes the answer on as it is where it goes to no terminal.
    """

    def __init__(self, out: Sink, err: Sink, *, raw: bool = False) -> None:
        self._out = out
        self._err = err
        self._raw = raw and not out.is_terminal
        self._held_return = ""
        """A carriage return that ended a piece: with what follows it may be the end of a line."""
        self._answer_open = False
        self._thinking_open = False

    def write_answer(self, text: str) -> None:
        """Write a piece of the answer, without anything that steers a terminal."""
        if not text:
            return
        self._close_thinking()
        if not self._raw:
            text, self._held_return = self._held_return + text, ""
            if text.endswith("\r"):
                text, self._held_return = text[:-1], "\r"
        self._write(text)
        self._answer_open = bool(self._held_return) or not text.endswith("\n")

    def end_answer(self) -> None:
        """End the line of the answer, if it has not ended."""
        if self._answer_open:
            self._write(self._held_return)
            self._held_return = ""
            self._out.write("\n")
            self._answer_open = False

    def write_thinking(self, text: str) -> None:
        """Show thinking to a person, dimmed; a file does without it."""
        if self._err.is_terminal:
            self._separate()
            self._err.write(f"{_DIM}{sanitize(text)}{_UNDIM}")
            self._thinking_open = not text.endswith("\n")

    def write_note(self, text: str) -> None:
        """Write a line about the run."""
        self._close_thinking()
        self._separate()
        self._err.write(sanitize(text) + "\n")

    async def drain(self) -> None:
        """Wait until there is room for more."""
        await self._out.drain()
        await self._err.drain()

    def _write(self, text: str) -> None:
        shown = text if self._raw else sanitize(text) if self._out.is_terminal else strip_controls(text)
        if shown:
            self._out.write(shown)

    def _separate(self) -> None:
        # In a file the line of the answer is not broken for what goes elsewhere.
        if self._out.is_terminal and self._err.is_terminal:
            self.end_answer()

    def _close_thinking(self) -> None:
        if self._thinking_open:
            self._err.write("\n")
            self._thinking_open = False
