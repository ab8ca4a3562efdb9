"""Reads keys, and tells a paste from typing also where the terminal does not mark it."""

import re
import select
import time

from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

BURST_SECONDS = 0.05
"""What follows a paste within this time belongs to it."""
MOST_READS = 4_096
"""Reads at one time, of about 1 KiB each; what is left is read in the next."""
_LINE_WITHIN = re.compile(r"[\r\n](?=.)", re.DOTALL)
_STEERING = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Keyboard(Vt100Input):
    """A terminal's input. Text that comes at once and holds a line end within it is one paste.

    A line end that is the last of what came is somebody's Enter, unless a paste was coming in just before.
    """

    _pasted_at = float("-inf")

    def read_keys(self) -> list[KeyPress]:
        """Return the keys that came."""
        text = self.stdin_reader.read()
        for _ in range(MOST_READS):
            if self.closed or not select.select([self.fileno()], [], [], 0)[0]:
                break
            text += self.stdin_reader.read()
        now = time.monotonic()
        in_burst = now - self._pasted_at < BURST_SECONDS and len(text) > 1
        # A key other than a character begins with an escape, or is a control character itself.
        if text and not _STEERING.search(text) and (in_burst or _LINE_WITHIN.search(text)):
            self._pasted_at = now
            return [KeyPress(Keys.BracketedPaste, text)]
        self.vt100_parser.feed(text)
        keys, self._buffer = self._buffer, []
        return keys
