"""Separation of an answer from the thinking that a model writes between `<think>` and `</think>`."""

from enum import Enum, auto
from typing import NamedTuple, assert_never

OPENING_TAG = "<think>"
CLOSING_TAG = "</think>"
MAX_BLANK_CHARACTERS = 1024
"""Maximum characters of white space before the opening tag; after more, a tag is text."""


class ThinkingSplit(NamedTuple):
    """The thinking in a piece of content, and the answer after it; either may be empty."""

    thinking: str
    answer: str


_EMPTY_SPLIT = ThinkingSplit("", "")


class _TagState(Enum):
    START = auto()
    OPENED = auto()
    THINKING = auto()
    CLOSED = auto()
    ANSWER = auto()


class ThinkTagSplitter:
    """Splitter for the content of one answer, fed with pieces of any size.

    Thinking is recognized only at the start of the answer, after optional white space; any later tag is text. White
    space after either tag is dropped. Without a closing tag everything is thinking.
    """

    def __init__(self) -> None:
        self._state = _TagState.START
        self._held = ""
        """Text that may still become a tag."""

    def feed(self, text: str) -> ThinkingSplit:
        """Return the text that is certain now."""
        text = self._held + text
        self._held = ""
        match self._state:
            case _TagState.ANSWER:
                return ThinkingSplit("", text)
            case _TagState.START:
                return self._start(text)
            case _TagState.OPENED:
                return self._open(text)
            case _TagState.THINKING:
                return self._think(text)
            case _TagState.CLOSED:
                return ThinkingSplit("", self._close(text))
            case _:
                assert_never(self._place)

    def end(self) -> ThinkingSplit:
        """Return the held text; any text fed later is the answer."""
        held, self._held = self._held, ""
        thinks = self._state is _TagState.THINKING
        self._state = _TagState.ANSWER
        return ThinkingSplit(held, "") if thinks else ThinkingSplit("", held)

    def _start(self, text: str) -> ThinkingSplit:
        begins = text.lstrip()
        if len(text) - len(begins) > MAX_BLANK_CHARACTERS or not OPENING_TAG.startswith(begins[: len(OPENING_TAG)]):
            self._state = _TagState.ANSWER
            return ThinkingSplit("", text)
        if len(begins) < len(OPENING_TAG):
            self._held = text
            return _EMPTY_SPLIT
        return self._open(begins[len(OPENING_TAG) :])

    def _open(self, text: str) -> ThinkingSplit:
        """Process the text after the opening tag."""
        text = text.lstrip()
        self._state = _TagState.THINKING if text else _TagState.OPENED
        return self._think(text) if text else _EMPTY_SPLIT

    def _think(self, text: str) -> ThinkingSplit:
        thinking, tag, answer = text.partition(CLOSING_TAG)
        if tag:
            return ThinkingSplit(thinking, self._close(answer))
        certain = len(thinking) - _count_partial_tag(thinking)
        self._held = thinking[certain:]
        return ThinkingSplit(thinking[:certain], "")

    def _close(self, text: str) -> str:
        """Process the text after the closing tag."""
        text = text.lstrip()
        self._state = _TagState.ANSWER if text else _TagState.CLOSED
        return text


def _count_partial_tag(text: str) -> int:
    """Return the number of characters at the end of the text that may begin the closing tag."""
    at = text.rfind("<", -len(CLOSING_TAG) + 1)
    return len(text) - at if at >= 0 and CLOSING_TAG.startswith(text[at:]) else 0
