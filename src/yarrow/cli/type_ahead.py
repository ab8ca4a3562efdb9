"""Keeps what is typed while the terminal UI starts: it is not echoed, not lost, and becomes no other key."""

import os
import select
from types import TracebackType
from typing import Self

from yarrow.client.tui.terminal_modes import get_modes, set_modes, to_cbreak

MAX_READ_BYTES = 1 << 16
"""Bytes taken of the terminal at one time; it keeps fewer itself."""
MAX_READS = 64
"""Of them at one time: what is left is read as keys later."""
_COOKED_KEYS = bytes.maketrans(b"\n\0", b"\r\x04")
"""What a terminal that reads by lines makes of Enter and of Ctrl+D, back to these."""


class TypeAhead:
    """A terminal that keys are only taken of later, for one `with`; then it is as it was."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._typed = b""
        self.original_modes = get_modes(descriptor)
        """How the terminal was; empty when it was closed."""

    def __enter__(self) -> Self:
        """Take keys one by one from now on, and those that were pressed before."""
        set_modes(self._descriptor, to_cbreak(self.original_modes))
        self.read_pending()
        self._typed = self._typed.translate(_COOKED_KEYS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""
        set_modes(self._descriptor, self.original_modes)

    def read_pending(self) -> None:
        """Take what was typed until now: it is not meant for what is shown next."""
        for _ in range(MAX_READS):
            if not select.select([self._descriptor], [], [], 0)[0]:
                break
            try:
                data = os.read(self._descriptor, MAX_READ_BYTES)
            except OSError:
                break
            if not data:
                break
            self._typed += data

    def take_text(self) -> str:
        """Return all that was typed until now, once."""
        self.read_pending()
        typed, self._typed = self._typed, b""
        return typed.decode("utf-8", "replace")
