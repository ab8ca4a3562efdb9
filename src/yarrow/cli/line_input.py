"""Reads what is typed at a terminal, line by line, while nothing else of the program stands still."""

from yarrow.cli.output_writer import OutputStream
from yarrow.cli.terminal_permissions import read_terminal
from yarrow.client.sanitizer import sanitize

PROMPT = "> "
CONTINUATION = "\\"
"""A line that ends so goes on in the next."""
MAX_READ_BYTES = 1 << 16
"""Bytes taken of the terminal at one time."""


class LineReader:
    """What is typed, line by line."""

    def __init__(self, err: OutputStream, *, descriptor: int = 0) -> None:
        self._err = err
        self._descriptor = descriptor
        self._rest = b""
        self._is_at_end = False

    async def read_line(self) -> str | None:
        """Ask for a line and return it, with those that it goes on in; None at the end of input."""
        # The beginning of a line that was typed during a question is shown again.
        begun = b"" if b"\n" in self._rest else self._rest
        self._err.write(PROMPT + sanitize(begun.decode("utf-8", "replace")))
        line = await self._read_physical_line()
        while (
            line is not None and line.endswith(CONTINUATION) and (more := await self._read_physical_line()) is not None
        ):
            line = f"{line.removesuffix(CONTINUATION)}\n{more}"
        return line

    def push_back(self, text: str) -> None:
        """Take text that was typed already, and is read as the next lines."""
        self._rest += text.encode("utf-8", "replace")

    async def _read_physical_line(self) -> str | None:
        while b"\n" not in self._rest and not self._is_at_end:
            data = await read_terminal(self._descriptor, MAX_READ_BYTES)
            self._rest += data
            self._is_at_end = not data
        line, end, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace") if line or end else None
