"""Token counts of one answer, from figures that servers report once or again and again while it streams."""

from math import isnan
from typing import Literal

from yarrow.message import Usage

MAX_FIGURE_TOKENS = 1 << 50
"""Maximum tokens of one figure; a server that claims more costs its own figure, and nothing else."""

TokenFigure = Literal["prompt", "fresh", "output", "answer", "thinking", "cache_read", "cache_write"]
"""`prompt` holds the cached tokens, `fresh` does not; `output` holds the thinking, `answer` does not."""


class UsageAccumulator:
    """The largest value of each figure: reports are running totals, and the last one may be 0 or incomplete."""

    def __init__(self) -> None:
        self._largest: dict[TokenFigure, int] = {}

    def add(self, figure: TokenFigure, tokens: float | None) -> None:
        """Add a reported figure; None is none."""
        if tokens is not None:
            self._largest[figure] = max(self._largest.get(figure, 0), _clamp(tokens))

    def usage(self) -> Usage | None:
        """Return the tokens of the answer; None when the server reported none."""
        largest = self._largest
        if not largest:
            return None
        read, written = largest.get("cache_read", 0), largest.get("cache_write", 0)
        thinking = largest.get("thinking", 0)
        fresh = largest["fresh"] if "fresh" in largest else max(0, largest.get("prompt", 0) - read - written)
        output = largest["output"] if "output" in largest else largest.get("answer", 0) + thinking
        return Usage(fresh, output, cache_read=read, cache_write=written, thinking=min(output, thinking))


def _clamp(tokens: float) -> int:
    return 0 if isnan(tokens) else int(min(max(0, tokens), MAX_FIGURE_TOKENS))
