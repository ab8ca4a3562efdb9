"""Finds a text in what was said in a session, without keeping the session in memory."""

import io
from pathlib import Path

from yarrow.message import Message
from yarrow.session.blobs import BlobReader
from yarrow.session.line import BadLine, read_lines

MAX_LINE_CHARACTERS = 100
"""Characters of a line that is found."""
_MAX_LEAD_CHARACTERS = 30
"""Of them, at most so many before what was looked for."""


def find_line(path: Path, text: str) -> str | None:
    """Return the first line of a message in a session file that holds `text`, whatever the case of its letters.

    A long line is cut around it. None when no message does. Raises `OSError`.
    """
    wanted = text.casefold()
    # Most lines hold nothing of it and are never decoded: ASCII ones, so that no letter has another length in another
    # case, without the longest part of the text that JSON writes as it is.
    plain = max(_split_plain_parts(text), key=len, default="").lower().encode()
    with path.open("rb") as stream:
        for block in stream:
            if plain not in block.lower() and block.isascii() and b"\\u" not in block and b'"blob"' not in block:
                continue
            for line in read_lines(io.BytesIO(block)):
                if isinstance(line.value, BadLine):
                    continue
                record, _ = BlobReader(path).inline_blobs(line.value)
                if isinstance(record, Message):
                    said = "\n".join((record.text, record.thinking))
                    if wanted in said.casefold():
                        return _excerpt(said, wanted)
    return None


def _excerpt(said: str, wanted: str) -> str:
    lines = said.splitlines()
    # What was looked for may itself have several lines.
    first = wanted.splitlines()[0] if wanted.splitlines() else ""
    line = " ".join(next((line for line in lines if first in line.casefold()), "").split())
    at = max(0, line.casefold().find(" ".join(first.split())))
    start = 0 if len(line) <= MAX_LINE_CHARACTERS else max(0, at - _MAX_LEAD_CHARACTERS)
    end = start + MAX_LINE_CHARACTERS
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def _split_plain_parts(text: str) -> list[str]:
    """Return the runs of ASCII letters, digits and spaces."""
    kept = (
        character if character.isascii() and (character.isalnum() or character == " ") else "\0" for character in text
    )
    return [part for part in "".join(kept).split("\0") if part]
