"""Reads the front matter of a markdown file: a few texts in YAML between two lines of `---`."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from yaml.events import Event

FRONT_BYTES = 8 << 10
"""In which front matter must end; no more is read for it."""
MOST_NESTED = 8
"""Mappings and lists in one another; only what we do not use may nest at all."""
LINE_CHARACTERS = 300
"""Of a text that is shown on one line; what is over is cut."""

_FENCE = "---\n"


class Split(Struct, frozen=True):
    """A markdown file in two parts."""

    values: Mapping[str, str]
    """The texts of the front matter by name; numbers and such are the texts they are written as."""
    body: str


class Malformed(Struct, frozen=True):
    """Why front matter cannot be read; ends a sentence that begins with the file's path."""

    why: str


def parse(text: str) -> Split | Malformed:
    """Split a file, of which `text` may be the beginning. Without front matter there are no values.

    Entries that are lists or mappings are passed over. Anchors, aliases and tags are refused: they make small
    texts large, and nobody writes them here.
    """
    if not text.startswith(_FENCE):
        return Split({}, text)
    lines = text[:FRONT_BYTES].splitlines(keepends=True)
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        return Malformed(f"has front matter that no line of --- ends within {FRONT_BYTES} bytes")
    front = "".join(lines[1:end])
    values = _texts(front)
    if isinstance(values, Malformed):
        return values
    return Split(values, text[len("".join(lines[: end + 1])) :])


def one_line(text: str) -> str:
    """Return a text on one line, cut to `LINE_CHARACTERS`, without characters that cannot be printed."""
    line = "".join(character for character in " ".join(text.split()) if character.isprintable())
    return line if len(line) <= LINE_CHARACTERS else line[: LINE_CHARACTERS - 3] + "..."


def _texts(front: str) -> dict[str, str] | Malformed:
    # Here, since most sessions have no front matter to read.
    import yaml

    try:
        return _mapping(yaml.parse(front, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" in line {mark.line + 2}"
        why = one_line(getattr(error, "problem", None) or str(error))
        return Malformed(f"has front matter that is not YAML{where}: {why}")


def _mapping(events: "Iterator[Event]") -> dict[str, str] | Malformed:
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
                return Malformed("has front matter with an alias; write the text out")
            case kinds.NodeEvent(anchor=str()) | kinds.ScalarEvent(tag=str()) | kinds.CollectionStartEvent(tag=str()):
                return Malformed("has front matter with an anchor or a tag; write plain texts")
            case kinds.ScalarEvent(value=value) if depth == 1 and key is None:
                key = value
            case kinds.ScalarEvent(value=value) if depth == 1 and key is not None:
                values[key], key = value, None
            case kinds.CollectionStartEvent():
                depth += 1
                if depth > MOST_NESTED or (depth == 1 and not isinstance(event, kinds.MappingStartEvent)):
                    break
                if depth == 2 and key is None:
                    return Malformed("has front matter with a key that is no text")
            case kinds.CollectionEndEvent():
                depth -= 1
                key = None
                if not depth:
                    return values
            case _ if depth:
                continue
            case _:
                break
    return Malformed("has front matter that is no mapping of texts")
