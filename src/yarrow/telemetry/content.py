"""What is said in a session, in the form of the GenAI conventions; only for those who asked for it."""

import msgspec

MAX_CONTENT_CHARACTERS = 16_384
"""Of one text that goes along; what is longer is cut."""


def format_message(role: str, text: str, **more: str) -> str:
    """Return one message as the JSON text of a list."""
    message = {"role": role, "parts": [{"type": "text", "content": text[:MAX_CONTENT_CHARACTERS]}], **more}
    return msgspec.json.encode([message]).decode()


class AnswerText:
    """Collects the text of one answer."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._room = MAX_CONTENT_CHARACTERS

    def add(self, text: str) -> None:
        """Add a piece; beyond `MAX_CONTENT_CHARACTERS` it is left out."""
        if self._room > 0:
            self._pieces.append(text[: self._room])
            self._room -= len(text)

    def format(self, reason: str) -> str:
        """Return the answer as a message."""
        return format_message("assistant", "".join(self._pieces), finish_reason=reason)
