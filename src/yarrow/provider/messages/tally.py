"""Keeps the tokens that a messages stream reports; later numbers replace earlier ones."""

from math import isnan

from yarrow.message import Usage
from yarrow.provider.chat_completions.tally import MAX_COUNT
from yarrow.provider.messages.event import Counts


class Tally:
    """The last value of each number; they are running totals, so nothing is added up."""

    def __init__(self) -> None:
        self._told = False
        self._input = 0.0
        self._output = 0.0
        self._read = 0.0
        self._written = 0.0

    def add(self, counts: Counts | None) -> None:
        """Take the numbers of an event, if it has any."""
        if counts is None:
            return
        self._told = True
        self._input = _last(counts.input_tokens, self._input)
        self._output = _last(counts.output_tokens, self._output)
        self._read = _last(counts.cache_read_input_tokens, self._read)
        self._written = _last(counts.cache_creation_input_tokens, self._written)

    def usage(self) -> Usage | None:
        """Return the tokens of the call; None when the server told nothing."""
        if not self._told:
            return None
        return Usage(_count(self._input), _count(self._output), _count(self._read), _count(self._written))


def _last(new: float | None, old: float) -> float:
    return old if new is None else new


def _count(value: float) -> int:
    return 0 if isnan(value) else int(min(max(0, value), MAX_COUNT))
