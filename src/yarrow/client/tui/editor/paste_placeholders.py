"""Long pastes: shown in short while one writes around them, and whole again when the text is sent."""

import re

MAX_INLINE_LINES = 10
MAX_INLINE_CHARACTERS = 2_000
"""A paste within both is put in as it is."""
_PLACEHOLDER = re.compile(r"\[pasted [\d,]+ (?:lines?|characters) #(\d+)\]")


class PastePlaceholders:
    """The pastes that placeholders stand for."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._number = 0

    def shorten(self, text: str) -> str:
        """Return what is put into the editor for a paste: itself, or a placeholder."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        count = text.count("\n") + 1
        if count <= MAX_INLINE_LINES and len(text) <= MAX_INLINE_CHARACTERS:
            return text
        self._number += 1
        size = f"{count:,} lines" if count > 1 else f"{len(text):,} characters"
        placeholder = f"[pasted {size} #{self._number}]"
        self._texts[placeholder] = text
        return placeholder

    def expand(self, text: str) -> str:
        """Return a text with what its placeholders stand for; one that was changed stands for itself."""
        return _PLACEHOLDER.sub(lambda found: self._texts.get(found[0], found[0]), text)

    def placeholder_before(self, text: str) -> str:
        """Return the placeholder that a text ends with, empty when it ends with none."""
        start = text.rfind("[")
        return text[start:] if start >= 0 and text[start:] in self._texts else ""
