"""Discovery of installed extension packages by reading only their entry points; cheap if there are none."""

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
"""Registers the contributions of an extension; may be async."""
ENTRY_POINT_GROUP = "yarrow.extensions"
"""Entry point group. Each entry names an extension and its function, which accepts a `Yarrow`."""
MAX_ENTRY_POINT_BYTES = 1 << 20
"""Maximum bytes read of a package's entry points; the rest is ignored."""


def find_entry_points(path: Sequence[str] | None = None) -> tuple[list["EntryPoint"], list[str]]:
    """Return the group's entry points sorted by name, and a warning for each package with unreadable ones.

    The first of several packages with the same name counts, as for imports. The working directory is excluded from
    `path` (`sys.path`) wherever it occurs: changing into a directory must not register its contents.
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
        except (OSError, ValueError, TypeError) as error:  # raised by the standard library for invalid entry points
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
    """Yield the normalized name of each package in a directory, and the path of its metadata."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                stem, dot, kind = entry.name.rpartition(".")
                if dot and kind in ("dist-info", "egg-info"):
                    yield stem.partition("-")[0].lower().replace(".", "_"), entry.path
    except OSError:  # an archive, or an unreadable directory
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
