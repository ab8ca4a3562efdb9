"""A line that is typed key by key below a question, and whether it was begun early enough to be meant for it."""

import re
import unicodedata

from yarrow.client.permission_prompts import TypedAnswer

QUIET_SECONDS = 1.0
"""Seconds after the question, and after the key before, at which the first key of an answer comes at the earliest."""
END_OF_INPUT = "\x04"
"""Ctrl+D: the end of input, in an empty line."""
_ERASE, _ERASE_WORD, _ERASE_LINE = "\x7f\b", "\x17", "\x15"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)


class TypedLine:
    """Takes keys with the time at which they came."""

    def __init__(self, text: str, shown_at: float) -> None:
        """`text` is what was typed already when the question was shown."""
        self.text = text
        self.echo = ""
        """What is to be shown of the keys taken since it was last emptied."""
        self._is_early = bool(text)
        self._shown_at = shown_at
        self._last_at = shown_at

    def feed(self, keys: str, at: float) -> list[TypedAnswer]:
        """Return the lines that end with these keys. A line with keys behind it is pasted, and no answer."""
        keys = _SEQUENCE.sub("", keys.replace("\r\n", "\n"))
        lines: list[TypedAnswer] = []
        for index, key in enumerate(keys):
            if key in "\r\n":
                is_last = index == len(keys) - 1
                lines.append(TypedAnswer(self.text, is_answer=is_last and not self._is_early))
                self.text, self._is_early = "", False
                self.echo += "\n"
            elif key == END_OF_INPUT and not self.text:
                lines.append(TypedAnswer("", is_answer=True, is_end=True))
            else:
                self._edit(key, at)
            self._last_at = at
        return lines

    def _edit(self, key: str, at: float) -> None:
        if key in _ERASE:
            self._erase(1)
        elif key == _ERASE_LINE:
            self._erase(len(self.text))
        elif key == _ERASE_WORD:
            self._erase(len(self.text) - len(re.sub(r"\S*\s*\Z", "", self.text)))
        elif key.isprintable() or key == "\t":
            if not self.text:
                self._is_early = min(at - self._shown_at, at - self._last_at) < QUIET_SECONDS
            self.text += key
            self.echo += key

    def _erase(self, count: int) -> None:
        kept = len(self.text) - min(count, len(self.text))
        self.echo += "".join("\b \b" * _width(key) for key in reversed(self.text[kept:]))
        self.text = self.text[:kept]
        self._is_early = self._is_early and bool(self.text)


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
