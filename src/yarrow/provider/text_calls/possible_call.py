"""Text of an answer from a possible beginning of a call on."""

from collections.abc import Mapping

from yarrow.message import ToolCall, ToolSpec
from yarrow.provider.text_calls.call_qualification import qualify_calls
from yarrow.provider.text_calls.call_scanner import NotACallError, Scanner, UnfinishedCallError
from yarrow.provider.text_calls.notations import read_answer

MAX_HELD_CHARACTERS = 1 << 20
"""Maximum characters held back as a possible call; anything longer is text."""
MAX_BLANK_CHARACTERS = 1024
"""Maximum characters of white space held back before a call, and of an opening before its call has begun; anything
longer is emitted.
"""

_BLOCK_CHARACTERS = 512


class PossibleCall:
    """Text from a possible beginning of a call on."""

    def __init__(self, *, is_whole: bool, blank: int) -> None:
        """Start with the number of white space characters before the text, which do not count."""
        self.scanner = Scanner()
        self.size = -blank
        self._pieces: list[str] = []
        self._steps = read_answer(self.scanner, is_whole=is_whole)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)

    def feed(self, text: str, start: int = 0) -> bool:
        """Add text from a position on; return whether this may still become a call."""
        at = start
        is_possible = True
        while at < len(text) and is_possible and not self.is_too_long:
            block = text[at : at + self._count_next()]
            at, self.size = at + len(block), self.size + len(block)
            self.scanner.feed(block)
            try:
                next(self._steps)
            except NotACallError:
                is_possible = False
            else:
                is_possible = self.scanner.is_certain or self.size <= MAX_BLANK_CHARACTERS
        # A text of which only a part is a failed candidate may be long, and have many of them.
        if is_possible or not start:
            self._pieces.append(text[start:])
        return is_possible

    @property
    def is_too_long(self) -> bool:
        """True if the text is longer than what may be held back."""
        return self.size > MAX_HELD_CHARACTERS

    def _count_next(self) -> int:
        """Return the size of the next block: each limit is checked at the same character however the text is split."""
        limit = MAX_HELD_CHARACTERS if self.scanner.is_certain else min(MAX_BLANK_CHARACTERS, MAX_HELD_CHARACTERS)
        return min(_BLOCK_CHARACTERS, limit + 1 - self.size)

    def find_calls(self, tools: Mapping[str, ToolSpec]) -> list[ToolCall] | str:
        """End the text; return its calls, or the reason why they do not run, empty if there is no call."""
        self.scanner.end()
        try:
            next(self._steps)
        except StopIteration:
            return self.scanner.doubt or qualify_calls(self.scanner.calls, tools)
        except UnfinishedCallError:
            return "it is incomplete" if self.scanner.is_certain else ""
        except NotACallError:
            return ""
        raise AssertionError("the grammar waits for more than the whole answer")
