"""Detection of text that a model repeats without end while it is streamed."""

import re

CHECK_CHARACTERS = 16 * 1024
"""Characters that a repetition has at least; the text is looked at once each time so many came."""
MIN_REPEATS = 50
SHORTEST, LONGEST = 4, 2_000
"""Characters of the repeated piece."""
FENCE_CHARACTERS = 64 * 1024
"""Characters of a fenced code block up to which repetition in it is an answer, such as a table of data."""
_NEEDLE = 256
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_WORDS = re.compile(r"[^\W_]")


class RepeatedText:
    """Watches one text of a message, piece by piece; keeps what the longest repetition needs of it."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._unseen = 0
        self._fences = 0
        self._fenced = 0
        self._line = ""
        self._tail = ""

    def add(self, text: str) -> bool:
        """Return whether the text ends in a repetition by now."""
        self._pieces.append(text)
        self._unseen += len(text)
        return self._unseen >= CHECK_CHARACTERS and self._is_repeated()

    def _is_repeated(self) -> bool:
        new = "".join(self._pieces)
        self._pieces, self._unseen = [], 0
        self._follow_fences(new)
        self._tail = (self._tail + new)[-MIN_REPEATS * LONGEST :]
        if self._fences % 2 and self._fenced < FENCE_CHARACTERS:
            return False
        period = repeated_piece(self._tail)
        return period > 0 and _WORDS.search(self._tail, len(self._tail) - period) is not None

    def _follow_fences(self, new: str) -> None:
        """Count the fences so far, and the characters since the last one."""
        lines = self._line + new
        end = lines.rfind("\n") + 1
        # A line that has not ended may yet become a fence, but none that is longer than this.
        self._line = lines[end:] if len(lines) - end <= _NEEDLE else ""
        fences = list(_FENCE.finditer(lines, 0, end))
        self._fences += len(fences)
        self._fenced = end - fences[-1].start() if fences else self._fenced + len(new)


def repeated_piece(text: str) -> int:
    """Return the length of the piece that a text ends in `MIN_REPEATS` times or more; 0 if there is none."""
    # The piece is as long as the way back to where the last characters were before.
    needle = text[-_NEEDLE:]
    before = text.rfind(needle, 0, len(text) - 1)
    length = len(text) - len(needle) - before
    if before < 0 or not SHORTEST <= length <= LONGEST:
        return 0
    end = text[-max(MIN_REPEATS * length, CHECK_CHARACTERS) :]
    is_whole = len(end) >= max(MIN_REPEATS * length, CHECK_CHARACTERS)
    return length if is_whole and end[length:] == end[:-length] else 0
