"""Markdown documents with front matter: skills and command templates."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from yarrow.prompt.resources import Resource
from yarrow.prompt.safe_reader import SkippedFile, read_text_file

if TYPE_CHECKING:
    from yaml.events import Event

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


MAX_FRONT_MATTER_BYTES = 8 << 10
"""In which front matter must end; no more is read for it."""
MAX_NESTING = 8
"""Mappings and lists in one another; only what we do not use may nest at all."""
MAX_LINE_CHARACTERS = 300
"""Of a text that is shown on one line; what is over is cut."""

_FENCE = "---\n"


class SplitDocument(Struct, frozen=True):
    """A markdown file in two parts."""

    values: Mapping[str, str]
    """The texts of the front matter by name; numbers and such are the texts they are written as."""
    body: str


class MalformedFrontMatter(Struct, frozen=True):
    """Why front matter cannot be read; ends a sentence that begins with the file's path."""

    why: str


def parse_front_matter(text: str) -> SplitDocument | MalformedFrontMatter:
    """Split a file, of which `text` may be the beginning. Without front matter there are no values.

    Entries that are lists or mappings are passed over. Anchors, aliases and tags are refused: they make small
    texts large, and nobody writes them here.
    """
    if not text.startswith(_FENCE):
        return SplitDocument({}, text)
    lines = text[:MAX_FRONT_MATTER_BYTES].splitlines(keepends=True)
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        return MalformedFrontMatter(f"has front matter that no line of --- ends within {MAX_FRONT_MATTER_BYTES} bytes")
    front = "".join(lines[1:end])
    values = _parse_texts(front)
    if isinstance(values, MalformedFrontMatter):
        return values
    return SplitDocument(values, text[len("".join(lines[: end + 1])) :])


def to_one_line(text: str) -> str:
    """Return a text on one line, cut to `MAX_LINE_CHARACTERS`, without characters that cannot be printed."""
    line = "".join(character for character in " ".join(text.split()) if character.isprintable())
    return line if len(line) <= MAX_LINE_CHARACTERS else line[: MAX_LINE_CHARACTERS - 3] + "..."


def _parse_texts(front: str) -> dict[str, str] | MalformedFrontMatter:
    # Here, since most sessions have no front matter to read.
    import yaml

    try:
        return _parse_mapping(yaml.parse(front, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" in line {mark.line + 2}"
        why = to_one_line(getattr(error, "problem", None) or str(error))
        return MalformedFrontMatter(f"has front matter that is not YAML{where}: {why}")


def _parse_mapping(events: "Iterator[Event]") -> dict[str, str] | MalformedFrontMatter:
    """Read a mapping from events, before anything is built from them."""
    from yaml import events as kinds

    values: dict[str, str] = {}
    key: str | None = None
    depth = 0
    for event in events:
        match event:
            case kinds.StreamStartEvent() | kinds.DocumentStartEvent():
                continue
            case kinds.AliasEvent():
                return MalformedFrontMatter("has front matter with an alias; write the text out")
            case kinds.NodeEvent(anchor=str()) | kinds.ScalarEvent(tag=str()) | kinds.CollectionStartEvent(tag=str()):
                return MalformedFrontMatter("has front matter with an anchor or a tag; write plain texts")
            case kinds.ScalarEvent(value=value) if depth == 1 and key is None:
                key = value
            case kinds.ScalarEvent(value=value) if depth == 1 and key is not None:
                values[key], key = value, None
            case kinds.CollectionStartEvent():
                depth += 1
                if depth > MAX_NESTING or (depth == 1 and not isinstance(event, kinds.MappingStartEvent)):
                    break
                if depth == 2 and key is None:
                    return MalformedFrontMatter("has front matter with a key that is no text")
            case kinds.CollectionEndEvent():
                depth -= 1
                key = None
                if not depth:
                    return values
            case _ if depth:
                continue
            case _:
                break
    return MalformedFrontMatter("has front matter that is no mapping of texts")
