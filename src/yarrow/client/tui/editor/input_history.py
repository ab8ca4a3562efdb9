"""What was typed before: gone through with Up and Down, while what is being written is kept."""

from collections.abc import Iterable

MAX_TEXTS = 1_000
"""Texts that are kept; then the oldest is forgotten."""


class InputHistory:
    """The texts of one session, oldest first, and the one that is not sent yet."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._at: int | None = None
        """Which is shown; None is the one that is being written."""
        self._draft = ""

    def replace_all(self, texts: Iterable[str]) -> None:
        """Take the texts of another session in place of these; what is being written stays."""
        self._texts = []
        self._at = None
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """Take a text that was sent; one that repeats the last is kept once."""
        self._at = None
        self._draft = ""
        if text.strip() and self._texts[-1:] != [text]:
            self._texts.append(text)
            del self._texts[:-MAX_TEXTS]

    def go_back(self, present: str) -> str | None:
        """Return the text before the one that is shown, None when there is none. `present` is what stands there now."""
        if self._at is None:
            self._draft = present
        at = (len(self._texts) if self._at is None else self._at) - 1
        if at < 0:
            return None
        self._at = at
        return self._texts[at]

    def go_forward(self) -> str | None:
        """Return the text after the one that is shown, in the end what is being written; None when that is shown."""
        if self._at is None:
            return None
        self._at += 1
        if self._at < len(self._texts):
            return self._texts[self._at]
        self._at = None
        return self._draft
