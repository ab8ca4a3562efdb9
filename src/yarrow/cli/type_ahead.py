"""Buffer for keys typed while the terminal UI starts; they are not echoed, lost or changed."""

import os
import select
from types import TracebackType
from typing import Self

from yarrow.client.tui.terminal_modes import get_modes, set_modes, to_cbreak

MAX_READ_BYTES = 1 << 16
"""Maximum bytes per read from the terminal, which itself buffers fewer."""
MAX_READS = 64
"""Maximum reads per call; the rest is read as keys later."""
_COOKED_KEYS = bytes.maketrans(b"\n\0", b"\r\x04")
"""Maps the characters that a line-buffered terminal delivers for Enter and Ctrl+D back to these keys."""


class TypeAhead:
    """Context manager that buffers the keys of a terminal without echo, then restores its modes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._typed = b""
        self.original_modes = get_modes(descriptor)
        """Modes of the terminal before; empty if it was closed."""

    def __enter__(self) -> Self:
        """Turn off line buffering and echo, and read the keys pressed before."""
        set_modes(self._descriptor, to_cbreak(self.original_modes))
        self.read_pending()
        self._typed = self._typed.translate(_COOKED_KEYS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the modes of the terminal."""
        set_modes(self._descriptor, self.original_modes)

    def read_pending(self) -> None:
        """Read the keys typed until now, which are not meant for what is shown next."""
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
        """Return everything typed until now, and clear the buffer."""
        self.read_pending()
        typed, self._typed = self._typed, b""
        return typed.decode("utf-8", "replace")
