"""Metadata stored with a block so that it returns to Gemini as the part it arrived in."""

import msgspec
from msgspec import Struct

from yarrow.provider.body import replace_surrogates


class PartMetadata(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The opaque data of a tool call, or of a separate block that signs the text before it or contains a thought."""

    thought_signature: bytes = b""
    id: str = ""
    """For a call: its id from the backend; empty if the id is ours and unknown to the backend."""
    length: int = 0
    """For signed text: its length in characters, at the end of the preceding text block, which may join several texts.
    """
    thought: str | None = None
    """For a signed thought: its text."""


_decode = msgspec.json.Decoder(PartMetadata).decode


def encode_metadata(note: PartMetadata) -> str:
    """Return the note as opaque data; empty if the note is."""
    return "" if note == PartMetadata() else replace_surrogates(msgspec.json.encode(note).decode())


def decode_metadata(opaque: str) -> PartMetadata:
    """Return the note in opaque data; an empty one if the data is not ours."""
    try:
        return _decode(opaque)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return PartMetadata()
