"""Splits the thinking that a model writes between `<think>` and `</think>` from its answer."""

from enum import Enum, auto
from typing import NamedTuple, assert_never

OPEN = "<think>"
CLOSE = "</think>"
MAX_BLANK = 1024
"""Characters of white space in front of the opening tag; behind more of it a tag is text."""


class Split(NamedTuple):
    """What a piece of content holds: thinking, and behind it the answer; either may be empty."""

    thinking: str
    answer: str


_NOTHING = Split("", "")


class _Place(Enum):
    START = auto()
    OPENED = auto()
    THINKING = auto()
    CLOSED = auto()
    ANSWER = auto()


class ThinkTags:
    """Takes the content of one answer in pieces of any size.

    Only a tag that the answer begins with opens thinking, white space before it aside; whatever looks like a tag later
    is text. White space behind either tag belongs to nobody. A tag that is never closed makes all of it thinking.
    """

    def __init__(self) -> None:
        self._place = _Place.START
        self._held = ""
        """What may still become a tag."""

    def feed(self, text: str) -> Split:
        """Return what is certain now."""
        text = self._held + text
        self._held = ""
        match self._place:
            case _Place.ANSWER:
                return Split("", text)
            case _Place.START:
                return self._start(text)
            case _Place.OPENED:
                return self._open(text)
            case _Place.THINKING:
                return self._think(text)
            case _Place.CLOSED:
                return Split("", self._close(text))
            case _:
                assert_never(self._place)

    def end(self) -> Split:
        """Return what was held back; whatever is fed after it is the answer."""
        held, self._held = self._held, ""
        thinks = self._place is _Place.THINKING
        self._place = _Place.ANSWER
        return Split(held, "") if thinks else Split("", held)

    def _start(self, text: str) -> Split:
        begins = text.lstrip()
        if len(text) - len(begins) > MAX_BLANK or not OPEN.startswith(begins[: len(OPEN)]):
            self._place = _Place.ANSWER
            return Split("", text)
        if len(begins) < len(OPEN):
            self._held = text
            return _NOTHING
        return self._open(begins[len(OPEN) :])

    def _open(self, text: str) -> Split:
        """Take what stands behind the opening tag."""
        text = text.lstrip()
        self._place = _Place.THINKING if text else _Place.OPENED
        return self._think(text) if text else _NOTHING

    def _think(self, text: str) -> Split:
        thinking, tag, answer = text.partition(CLOSE)
        if tag:
            return Split(thinking, self._close(answer))
        certain = len(thinking) - _begun(thinking)
        self._held = thinking[certain:]
        return Split(thinking[:certain], "")

    def _close(self, text: str) -> str:
        """Take what stands behind the closing tag."""
        text = text.lstrip()
        self._place = _Place.ANSWER if text else _Place.CLOSED
        return text


def _begun(text: str) -> int:
    """Return how many characters at the end of the text may be the beginning of the closing tag."""
    at = text.rfind("<", -len(CLOSE) + 1)
    return len(text) - at if at >= 0 and CLOSE.startswith(text[at:]) else 0
