"""Reads a markdown file that is offered under a name: its front matter and its body."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from yarrow.prompt.front_matter import MalformedFrontMatter, parse_front_matter
from yarrow.prompt.resources import Resource
from yarrow.prompt.safe_reader import SkippedFile, read_text_file

MAX_DOCUMENT_BYTES = 64 << 10
"""Of a template or a skill that is used; a larger one is refused, since half of it says something else."""


class Document(Struct, frozen=True):
    """A file that could be read."""

    values: Mapping[str, str]
    """The texts of its front matter."""
    body: str
    """What follows; when only the beginning was read, the beginning of it."""
    real: Path


class UnusableDocument(Struct, frozen=True):
    """Why an offer cannot be used; ends a sentence that begins with its path."""

    why: str


def read_document(
    resource: Resource, *, most: int, largest: int | None = MAX_DOCUMENT_BYTES
) -> Document | UnusableDocument:
    """Read the first `most` bytes, which must hold the whole front matter, of a file of at most `largest` bytes."""
    file = read_text_file(resource.path, most=most, inside=resource.inside, directories=resource.directories)
    if file is None:
        return UnusableDocument("is gone")
    if isinstance(file, SkippedFile):
        return UnusableDocument(file.why)
    if largest is not None and file.size > largest:
        return UnusableDocument(f"is left out: it has {file.size} bytes, and at most {largest} are read")
    split = parse_front_matter(file.text)
    if isinstance(split, MalformedFrontMatter):
        return UnusableDocument(split.why)
    return Document(values=split.values, body=split.body, real=file.real)
