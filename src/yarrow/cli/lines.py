"""Reads what is typed at a terminal, line by line, while nothing else of the program stands still."""

from yarrow.cli.output import Stream
from yarrow.cli.person import read_typed
from yarrow.client.inert import inert

SIGN = "> "
CONTINUED = "\\"
"""A line that ends so goes on in the next."""
LONGEST_READ = 1 << 16
"""Bytes taken of the terminal at one time."""


class Lines:
    """What is typed, line by line."""

    def __init__(self, err: Stream, *, descriptor: int = 0) -> None:
        self._err = err
        self._descriptor = descriptor
        self._rest = b""
        self._is_over = False

    async def next(self) -> str | None:
        """Ask for a line and return it, with those that it goes on in; None at the end of input."""
        # The beginning of a line that was typed during a question is shown again.
        begun = b"" if b"\n" in self._rest else self._rest
        self._err.write(SIGN + inert(begun.decode("utf-8", "replace")))
        line = await self._line()
        while line is not None and line.endswith(CONTINUED) and (more := await self._line()) is not None:
            line = f"{line.removesuffix(CONTINUED)}\n{more}"
        return line

    def keep(self, text: str) -> None:
        """Take text that was typed already, and is read as the next lines."""
        self._rest += text.encode("utf-8", "replace")

    async def _line(self) -> str | None:
        while b"\n" not in self._rest and not self._is_over:
            data = await read_typed(self._descriptor, LONGEST_READ)
            self._rest += data
            self._is_over = not data
        line, end, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace") if line or end else None
