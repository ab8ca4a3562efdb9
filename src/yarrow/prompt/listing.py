"""Lists by name what users and projects offer: templates and skills, of which each name is taken once."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from msgspec import Struct

from yarrow.prompt.places import Places, shown

NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
MOST_ENTRIES = 2_000
"""Of one directory that are looked at; others are left out, and said so."""
MOST_WARNINGS = 20
"""Of one listing or session that are told; of others only their number."""


class Offer(Struct, frozen=True):
    """A file by its name as a command."""

    path: Path
    inside: Path | None
    """The directory that a link must not leave; None for what is the user's."""
    places: Places
    """Where it was found."""


class Kind(Struct, frozen=True):
    """What is looked for."""

    noun: str
    directories: tuple[str, ...]
    """Below each directory of the project; the last part of the first is also below the user's directory."""
    ending: str
    """Of the entries' names, which are the commands' names with it."""
    file: str
    """The file in each entry; empty when the entry is the file."""
    most: int
    """How many there can be; others are left out, and said so."""


class Listing(Struct, frozen=True):
    """What there is, read from directories alone."""

    offers: Mapping[str, Offer]
    """In the order they were found in."""
    warnings: tuple[str, ...]


def listing(places: Places, kind: Kind) -> Listing:
    """List one kind: the user's first, then the project's from its root down; of two with a name the first counts."""
    offers: dict[str, Offer] = {}
    warnings: list[str] = []
    for name, offer in _found(places, kind, warnings=warnings):
        path = places.shown(offer.path)
        if not re.fullmatch(NAME, name):
            warnings.append(f"{path} is left out: {shown(name)!r} is no name, which has letters, digits and _.- only")
        elif first := offers.get(name):
            warnings.append(f"{path} is left out: {places.shown(first.path)} has the same name")
        elif len(offers) == kind.most:
            warnings.append(f"{path} and what follows are left out: there can be {kind.most} {kind.noun}s")
            break
        else:
            offers[name] = offer
    return Listing(offers, tuple(warnings))


def told(warnings: Sequence[str]) -> tuple[str, ...]:
    """Return as many warnings as a person reads, and how many there are besides."""
    more = len(warnings) - MOST_WARNINGS
    return (*warnings[:MOST_WARNINGS], f"and {more} more warnings") if more > 0 else tuple(warnings)


def _found(places: Places, kind: Kind, *, warnings: list[str]) -> Iterator[tuple[str, Offer]]:
    known: set[Path] = set()
    for directory, inside in _directories(places, kind):
        real = Path(os.path.realpath(directory))
        if real in known:
            continue
        known.add(real)
        if inside is not None and not real.is_relative_to(inside):
            warnings.append(f"{places.shown(directory)} is a link that leads out of the project")
            continue
        for entry in _entries(directory, places.shown(directory), warnings=warnings):
            path = directory / entry / kind.file
            if entry.endswith(kind.ending) and not entry.startswith(".") and (not kind.file or os.path.lexists(path)):
                yield entry.removesuffix(kind.ending), Offer(path, inside, places)


def _directories(places: Places, kind: Kind) -> Iterable[tuple[Path, Path | None]]:
    yield places.users / Path(kind.directories[0]).name, None
    for directory in places.project():
        for name in kind.directories:
            yield directory / name, places.root


def _entries(directory: Path, path: str, *, warnings: list[str]) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in islice(entries, MOST_ENTRIES + 1)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        warnings.append(f"{path} cannot be read: {error.strerror}")
        return []
    if len(names) > MOST_ENTRIES:
        warnings.append(f"{path} holds more than {MOST_ENTRIES} entries; some of them are not looked at")
    return sorted(names[:MOST_ENTRIES])
