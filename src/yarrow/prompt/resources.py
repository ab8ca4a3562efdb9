"""Named resources of users and projects: templates and skills; each name is used once."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from msgspec import Struct

from yarrow.platform.real_path import real_path
from yarrow.prompt.session_directories import SessionDirectories, format_path

RESOURCE_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
MAX_ENTRIES = 2_000
"""Maximum directory entries read; the rest are omitted with a warning."""
MAX_WARNINGS = 20
"""Maximum warnings shown per listing or session; the rest are counted."""


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
