"""Finds installed packages with an extension by a look at their entry points alone; it costs little when none has."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yarrow.platform import system

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from yarrow.extension.api import Yarrow

ExtensionFunction = Callable[["Yarrow"], Any]
"""Registers what an extension adds; may be async."""
ENTRY_POINT_GROUP = "yarrow.extensions"
"""The group of entry points. Each names an extension, and its function that takes a `Yarrow`."""
MAX_ENTRY_POINT_BYTES = 1 << 20
"""Bytes that are read of a package's entry points; what comes after is not seen."""


def find_entry_points(path: Sequence[str] | None = None) -> tuple[list["EntryPoint"], list[str]]:
    """Return the entry points of the group sorted by name, and a warning for each package whose cannot be read.

    Of a package that is there twice the first counts, as it does for imports. The working directory is not looked
    at, wherever it stands in `path` (`sys.path`): being in a directory must not register what lies in it.
    """
    found: dict[str, str] = {}
    for folder in _list_folders(sys.path if path is None else path):
        for package, metadata in _list_packages(folder):
            found.setdefault(package, metadata)
    points: list[EntryPoint] = []
    warnings: list[str] = []
    for metadata in filter(_mentions_group, found.values()):
        try:
            points += _read_entry_points(metadata)
        except (OSError, ValueError, TypeError) as error:  # what the standard library raises for one that is no such
            warnings.append(f"the entry points in {metadata} cannot be read: {error}")
    return sorted(points, key=lambda point: point.name), warnings


def _list_folders(path: Sequence[str]) -> Iterator[str]:
    try:
        working = Path.cwd().stat()
    except OSError:
        working = None
    for folder in dict.fromkeys(path):
        if not Path(folder).is_absolute():
            continue
        try:
            here = Path(folder).stat()
        except OSError:
            continue
        if working is None or not os.path.samestat(here, working):
            yield folder


def _list_packages(folder: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each package in a folder, as it compares, and where its metadata are."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                stem, dot, kind = entry.name.rpartition(".")
                if dot and kind in ("dist-info", "egg-info"):
                    yield stem.partition("-")[0].lower().replace(".", "_"), entry.path
    except OSError:  # an archive, or nothing that we may read
        return


def _mentions_group(metadata: str) -> bool:
    try:
        descriptor = os.open(f"{metadata}/entry_points.txt", os.O_RDONLY | system.NONBLOCK | system.BASE_FLAGS)
    except OSError:
        return False
    try:
        return ENTRY_POINT_GROUP.encode() in os.read(descriptor, MAX_ENTRY_POINT_BYTES)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _read_entry_points(metadata: str) -> list["EntryPoint"]:
    from importlib.metadata import Distribution

    return list(Distribution.at(metadata).entry_points.select(group=ENTRY_POINT_GROUP))
