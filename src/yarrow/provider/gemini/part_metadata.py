"""What is kept beside a block so that it goes back to Gemini as the part it came in."""

import msgspec
from msgspec import Struct

from yarrow.provider.body import replace_surrogates


class PartMetadata(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The opaque data of a tool call, or of a block of its own that signs the text before it or holds a thought."""

    thought_signature: bytes = b""
    id: str = ""
    """Of a call: the id that the backend gave it; empty when it is ours and means nothing there."""
    length: int = 0
    """Of signed text: its characters, at the end of the text block before; neighbouring text was joined to it."""
    thought: str | None = None
    """Of a signed thought: its text."""


_decode = msgspec.json.Decoder(PartMetadata).decode


def encode_metadata(note: PartMetadata) -> str:
    """Return the note as opaque data; empty when there is nothing to keep."""
    return "" if note == PartMetadata() else replace_surrogates(msgspec.json.encode(note).decode())


def decode_metadata(opaque: str) -> PartMetadata:
    """Return the note in opaque data; an empty one when it is none of ours."""
    try:
        return _decode(opaque)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return PartMetadata()
