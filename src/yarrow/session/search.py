"""Finds a text in what was said in a session, without keeping the session in memory."""

import io
from pathlib import Path

from yarrow.message import Message
from yarrow.session.blobs import BlobReader
from yarrow.session.line import Bad, read_lines


def holds(path: Path, text: str) -> bool:
    """Say whether a message of a session file holds `text`, whatever the case of its letters. Raises `OSError`."""
    wanted = text.casefold()
    # Most lines hold nothing of it and are never decoded: ASCII ones, so that no letter has another length in another
    # case, without the longest part of the text that JSON writes as it is.
    plain = max(_plain_parts(text), key=len, default="").lower().encode()
    with path.open("rb") as stream:
        for block in stream:
            if plain not in block.lower() and block.isascii() and b"\\u" not in block and b'"blob"' not in block:
                continue
            for line in read_lines(io.BytesIO(block)):
                if isinstance(line.value, Bad):
                    continue
                record, _ = BlobReader(path).brought_in(line.value)
                if isinstance(record, Message):
                    said = "\n".join((record.text, record.thinking))
                    if wanted in said.casefold():
                        return True
    return False


def _plain_parts(text: str) -> list[str]:
    """Return the runs of ASCII letters, digits and spaces."""
    kept = (
        character if character.isascii() and (character.isalnum() or character == " ") else "\0" for character in text
    )
    return [part for part in "".join(kept).split("\0") if part]
