"""Output of a client: writing returns at once, draining waits for room."""

from typing import Protocol


class Sink(Protocol):
    """Standard output, standard error, or a replacement for one of them."""

    @property
    def is_terminal(self) -> bool:
        """True if the output is a terminal."""
        ...

    def write(self, text: str) -> None:
        """Write text and return at once; an exception ends the client."""
        ...

    async def drain(self) -> None:
        """Wait until there is room for more."""
        ...
