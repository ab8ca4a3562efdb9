"""Reads a markdown file that is offered under a name: its front matter and its body."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from yarrow.prompt.front_matter import Malformed, parse
from yarrow.prompt.listing import Offer
from yarrow.prompt.reading import Skipped, read_text

DOCUMENT_BYTES = 64 << 10
"""Of a template or a skill that is used; a larger one is refused, since half of it says something else."""


class Document(Struct, frozen=True):
    """A file that could be read."""

    values: Mapping[str, str]
    """The texts of its front matter."""
    body: str
    """What follows; when only the beginning was read, the beginning of it."""
    real: Path


class Unusable(Struct, frozen=True):
    """Why an offer cannot be used; ends a sentence that begins with its path."""

    why: str


def read_document(offer: Offer, *, most: int, largest: int | None = DOCUMENT_BYTES) -> Document | Unusable:
    """Read the first `most` bytes, which must hold the whole front matter, of a file of at most `largest` bytes."""
    file = read_text(offer.path, most=most, inside=offer.inside, places=offer.places)
    if file is None:
        return Unusable("is gone")
    if isinstance(file, Skipped):
        return Unusable(file.why)
    if largest is not None and file.size > largest:
        return Unusable(f"is left out: it has {file.size} bytes, and at most {largest} are read")
    split = parse(file.text)
    if isinstance(split, Malformed):
        return Unusable(split.why)
    return Document(values=split.values, body=split.body, real=file.real)
