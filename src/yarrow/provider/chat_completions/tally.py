"""Keeps the tokens that a stream reports, wherever in a chunk they stand."""

from math import isnan

from yarrow.message import Usage
from yarrow.provider.chat_completions.chunk import Chunk, Timings, TokenCounts

MAX_COUNT = 1 << 50
"""Tokens of one number; a server that claims more costs its own figure, and nothing else."""


class Tally:
    """The last value of each number; servers report running totals, so nothing is added up."""

    def __init__(self) -> None:
        self._prompt: float | None = None
        self._output: float | None = None
        self._cached: float | None = None
        self._written: float | None = None
        self._thinking: float | None = None
        self._timings: Timings | None = None

    def add(self, chunk: Chunk) -> None:
        """Take the numbers of a chunk, if it has any."""
        if chunk.choices and chunk.choices[0].usage is not None:
            self._take(chunk.choices[0].usage)
        if chunk.x_groq is not None and chunk.x_groq.usage is not None:
            self._take(chunk.x_groq.usage)
        if chunk.usage is not None:
            self._take(chunk.usage)
        if chunk.timings is not None:
            self._timings = chunk.timings

    def usage(self) -> Usage | None:
        """Return the tokens of the call; None when the server told nothing."""
        timings = self._timings or Timings()
        if self._prompt is None and self._output is None:
            if self._timings is None:
                return None
            cached = _count(timings.cache_n)
            return Usage(input=_count(timings.prompt_n), output=_count(timings.predicted_n), cache_read=cached)
        cached = _count(self._cached if self._cached is not None else timings.cache_n)
        written = _count(self._written)
        uncached = max(0, _count(self._prompt) - cached - written)
        output = _count(self._output)
        thinking = min(output, _count(self._thinking))
        return Usage(uncached, output, cache_read=cached, cache_write=written, thinking=thinking)

    def _take(self, counts: TokenCounts) -> None:
        details = counts.prompt_tokens_details
        cached = counts.prompt_cache_hit_tokens if details is None else details.cached_tokens
        self._prompt = _last(counts.prompt_tokens, self._prompt)
        self._output = _last(counts.completion_tokens, self._output)
        self._cached = _last(cached, self._cached)
        if counts.completion_tokens_details is not None:
            self._thinking = _last(counts.completion_tokens_details.reasoning_tokens, self._thinking)
        if details is not None:
            self._written = _last(details.cache_write_tokens, self._written)


def _last(new: float | None, old: float | None) -> float | None:
    return old if new is None else new


def _count(value: float | None) -> int:
    if value is None or isnan(value):
        return 0
    return int(min(max(0, value), MAX_COUNT))
