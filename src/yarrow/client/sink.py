"""Where a client writes: text that is handed over at once, and a wait for room."""

from typing import Protocol


class Sink(Protocol):
    """Standard output or standard error, or what stands in for it."""

    @property
    def is_terminal(self) -> bool:
        """Whether a person looks at it."""
        ...

    def write(self, text: str) -> None:
        """Hand text over and return at once; whatever it raises ends the client."""
        ...

    async def drain(self) -> None:
        """Wait until there is room for more."""
        ...
