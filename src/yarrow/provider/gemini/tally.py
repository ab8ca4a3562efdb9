"""Keeps the tokens that a Gemini stream reports; later numbers replace earlier ones."""

from yarrow.message import Usage
from yarrow.provider.chat_completions.tally import MAX_COUNT
from yarrow.provider.gemini.chunk import Counts


class Tally:
    """The last value of each number; they are running totals, so nothing is added up."""

    def __init__(self) -> None:
        self._told = False
        self._prompt = 0
        self._cached = 0
        self._answer = 0
        self._thoughts = 0

    def add(self, counts: Counts | None) -> None:
        """Take the numbers of a chunk, if it has any."""
        if counts is None:
            return
        self._told = True
        self._prompt = _last(counts.prompt_token_count, self._prompt)
        self._cached = _last(counts.cached_content_token_count, self._cached)
        self._answer = _last(counts.candidates_token_count, self._answer)
        self._thoughts = _last(counts.thoughts_token_count, self._thoughts)

    def usage(self) -> Usage | None:
        """Return the tokens of the call; None when the backend told nothing."""
        if not self._told:
            return None
        asked = max(0, self._prompt - self._cached)
        output = self._answer + self._thoughts
        return Usage(asked, output, cache_read=self._cached, thinking=self._thoughts)


def _last(new: int | None, old: int) -> int:
    return old if new is None else min(max(0, new), MAX_COUNT)
