"""Named resources of users and projects: templates and skills, Markdown documents with front matter."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from yarrow.platform.real_path import real_path
from yarrow.prompt.resource_directories import SessionDirectories, SkippedFile, format_path, read_text_file

if TYPE_CHECKING:
    from yaml.events import Event

RESOURCE_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
MAX_ENTRIES = 2_000
"""Maximum directory entries read; the rest are omitted with a warning."""
MAX_WARNINGS = 20
"""Maximum warnings shown per listing or session; the rest are counted."""
MAX_DOCUMENT_BYTES = 64 << 10
"""Maximum bytes of a template or skill; a larger one is rejected, since truncation could change its meaning."""
MAX_FRONT_MATTER_BYTES = 8 << 10
"""Maximum bytes from the start within which front matter must end."""
MAX_NESTING = 8
"""Maximum nesting depth of mappings and lists; only ignored values may be nested at all."""
MAX_LINE_CHARACTERS = 300
"""Maximum characters of a text shown on one line; the rest is truncated."""


class Resource(Struct, frozen=True):
    """A file with its name as a command."""

    path: Path
    inside: Path | None
    """The directory that symlinks must stay in; None for the user's own files."""
    directories: SessionDirectories
    """Directories in which it was found."""


class ResourceKind(Struct, frozen=True):
    """Kind of resource to list."""

    noun: str
    directories: tuple[str, ...]
    """Directories to search in each project directory; the last part of the first also in the user's directory."""
    ending: str
    """Suffix of the entry names, removed to get the command names."""
    file: str
    """The file in each entry; empty if the entry itself is the file."""
    max_count: int
    """Maximum number of resources; the rest are omitted with a warning."""


class ResourceList(Struct, frozen=True):
    """Available resources, found by reading directories only."""

    resources: Mapping[str, Resource]
    """In the order of discovery."""
    warnings: tuple[str, ...]


def list_resources(directories: SessionDirectories, kind: ResourceKind) -> ResourceList:
    """List one kind: the user's first, then the project's from its root down.

    The first resource of each name is used.
    """
    offers: dict[str, Resource] = {}
    warnings: list[str] = []
    for name, offer in _find_resources(directories, kind, warnings=warnings):
        path = directories.format_path(offer.path)
        if not re.fullmatch(RESOURCE_NAME, name):
            warnings.append(
                f"{path} is skipped: {format_path(name)!r} is not a valid name; use only letters, digits and _.-"
            )
        elif first := offers.get(name):
            warnings.append(f"{path} is skipped: {directories.format_path(first.path)} has the same name")
        elif len(offers) == kind.max_count:
            warnings.append(f"{path} and later files are skipped: the limit is {kind.max_count} {kind.noun}s")
            break
        else:
            offers[name] = offer
    return ResourceList(offers, tuple(warnings))


def limit_warnings(warnings: Sequence[str]) -> tuple[str, ...]:
    """Return the first warnings, followed by the number of the others."""
    more = len(warnings) - MAX_WARNINGS
    return (*warnings[:MAX_WARNINGS], f"and {more} more warnings") if more > 0 else tuple(warnings)


def _find_resources(
    places: SessionDirectories, kind: ResourceKind, *, warnings: list[str]
) -> Iterator[tuple[str, Resource]]:
    known: set[Path] = set()
    for directory, inside in _list_directories(places, kind):
        real = Path(real_path(directory))
        if real in known:
            continue
        known.add(real)
        if inside is not None and not real.is_relative_to(inside):
            warnings.append(f"{places.format_path(directory)} is a symlink that leads out of the project")
            continue
        for entry in _list_entries(directory, places.format_path(directory), warnings=warnings):
            path = directory / entry / kind.file
            if entry.endswith(kind.ending) and not entry.startswith(".") and (not kind.file or os.path.lexists(path)):
                yield entry.removesuffix(kind.ending), Resource(path, inside, places)


def _list_directories(places: SessionDirectories, kind: ResourceKind) -> Iterable[tuple[Path, Path | None]]:
    yield places.user_directory / Path(kind.directories[0]).name, None
    for directory in places.list_project_directories():
        for name in kind.directories:
            yield directory / name, places.root


def _list_entries(directory: Path, path: str, *, warnings: list[str]) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in islice(entries, MAX_ENTRIES + 1)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        warnings.append(f"{path} cannot be read: {error.strerror}")
        return []
    if len(names) > MAX_ENTRIES:
        warnings.append(f"{path} contains more than {MAX_ENTRIES} entries; some are ignored")
    return sorted(names[:MAX_ENTRIES])


class Document(Struct, frozen=True):
    """A readable document."""

    values: Mapping[str, str]
    """The string values of its front matter."""
    body: str
    """The body, or its start if only the start of the file was read."""
    real: Path


class UnusableDocument(Struct, frozen=True):
    """Reason why a document cannot be used; continues a sentence that starts with its path."""

    why: str


def read_document(
    resource: Resource, *, most: int, largest: int | None = MAX_DOCUMENT_BYTES
) -> Document | UnusableDocument:
    """Read the first `most` bytes, including the complete front matter, of a file of at most `largest` bytes."""
    file = read_text_file(resource.path, most=most, inside=resource.inside, directories=resource.directories)
    if file is None:
        return UnusableDocument("no longer exists")
    if isinstance(file, SkippedFile):
        return UnusableDocument(file.why)
    if largest is not None and file.size > largest:
        return UnusableDocument(f"is skipped: it has {file.size} bytes, and the limit is {largest}")
    split = parse_front_matter(file.text)
    if isinstance(split, MalformedFrontMatter):
        return UnusableDocument(split.why)
    return Document(values=split.values, body=split.body, real=file.real)


_FENCE = "---\n"


class SplitDocument(Struct, frozen=True):
    """Front matter and body of a Markdown file."""

    values: Mapping[str, str]
    """The values of the front matter by name; numbers and other scalars are kept as written."""
    body: str


class MalformedFrontMatter(Struct, frozen=True):
    """Reason why front matter cannot be parsed; continues a sentence that starts with the file's path."""

    why: str


def parse_front_matter(text: str) -> SplitDocument | MalformedFrontMatter:
    """Split a file into front matter and body; `text` may be only its start. Without front matter, there are no values.

    Lists and mappings are ignored. Anchors, aliases and tags are rejected: they allow exponential expansion and have no
    use here.
    """
    if not text.startswith(_FENCE):
        return SplitDocument({}, text)
    lines = text[:MAX_FRONT_MATTER_BYTES].splitlines(keepends=True)
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        return MalformedFrontMatter(f"has front matter without a closing --- within {MAX_FRONT_MATTER_BYTES} bytes")
    front = "".join(lines[1:end])
    values = _parse_texts(front)
    if isinstance(values, MalformedFrontMatter):
        return values
    return SplitDocument(values, text[len("".join(lines[: end + 1])) :])


def to_one_line(text: str) -> str:
    """Return a text on one line, truncated to `MAX_LINE_CHARACTERS`, without unprintable characters."""
    line = "".join(character for character in " ".join(text.split()) if character.isprintable())
    return line if len(line) <= MAX_LINE_CHARACTERS else line[: MAX_LINE_CHARACTERS - 3] + "..."


def _parse_texts(front: str) -> dict[str, str] | MalformedFrontMatter:
    # Imported here because most sessions have no front matter to read.
    import yaml

    try:
        return _parse_mapping(yaml.parse(front, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" (line {mark.line + 2})"
        why = to_one_line(getattr(error, "problem", None) or str(error))
        return MalformedFrontMatter(f"has front matter that is not valid YAML{where}: {why}")


def _parse_mapping(events: "Iterator[Event]") -> dict[str, str] | MalformedFrontMatter:
    """Parse a mapping from events, before any object is constructed from them."""
    from yaml import events as kinds

    values: dict[str, str] = {}
    key: str | None = None
    depth = 0
    for event in events:
        match event:
            case kinds.StreamStartEvent() | kinds.DocumentStartEvent():
                continue
            case kinds.AliasEvent():
                return MalformedFrontMatter("has front matter with a YAML alias; write out the text instead")
            case kinds.NodeEvent(anchor=str()) | kinds.ScalarEvent(tag=str()) | kinds.CollectionStartEvent(tag=str()):
                return MalformedFrontMatter("has front matter with a YAML anchor or tag; use plain strings")
            case kinds.ScalarEvent(value=value) if depth == 1 and key is None:
                key = value
            case kinds.ScalarEvent(value=value) if depth == 1 and key is not None:
                values[key], key = value, None
            case kinds.CollectionStartEvent():
                depth += 1
                if depth > MAX_NESTING or (depth == 1 and not isinstance(event, kinds.MappingStartEvent)):
                    break
                if depth == 2 and key is None:
                    return MalformedFrontMatter("has front matter with a key that is not a string")
            case kinds.CollectionEndEvent():
                depth -= 1
                key = None
                if not depth:
                    return values
            case _ if depth:
                continue
            case _:
                break
    return MalformedFrontMatter("has front matter that is not a mapping of strings")
