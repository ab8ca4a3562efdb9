"""Loader of extensions, installed ones included: combines their contributions; a failed one only causes a warning."""

import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from yarrow.agent.hooks import Contributions, no_contributions
from yarrow.platform import system

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from yarrow.extension.api import Yarrow
    from yarrow.extension.extension_host import ExtensionHost

ExtensionFunction = Callable[["Yarrow"], Any]
"""Registers the contributions of an extension; may be async."""
ENTRY_POINT_GROUP = "yarrow.extensions"
"""Entry point group. Each entry names an extension and its function, which accepts a `Yarrow`."""
MAX_ENTRY_POINT_BYTES = 1 << 20
"""Maximum bytes read of a package's entry points; the rest is ignored."""


class LoadedExtensions:
    """The loaded extensions and their threads."""

    def __init__(self, contributions: Contributions, hosts: Sequence["ExtensionHost"], printed: TextIO | None) -> None:
        self.contributions = contributions
        self._hosts = hosts
        self._stdout = printed

    async def close(self) -> None:
        """End the extensions; one that blocks is abandoned after `host.MAX_CLOSE_SECONDS`. Idempotent."""
        import asyncio

        ended = await asyncio.gather(*(host.close() for host in self._hosts))
        if all(ended):
            self._restore_stdout()

    def abandon(self) -> None:
        """End unused extensions without waiting for their threads."""
        for host in self._hosts:
            host.stop()
        self._restore_stdout()

    def _restore_stdout(self) -> None:
        if self._stdout is not None and sys.stdout is sys.stderr:
            sys.stdout = self._stdout

    @property
    def has_any(self) -> bool:
        """True if any extension is loaded."""
        return bool(self._hosts)


def no_extensions() -> LoadedExtensions:
    """Return the result for a process that loads no extensions, such as a client of a remote service."""
    return LoadedExtensions(no_contributions(), (), None)


def load_extensions(
    files: Sequence[Path],
    *,
    functions: Sequence[ExtensionFunction] = (),
    tools: Collection[str] = (),
    on_first: Callable[[], object] | None = None,
) -> LoadedExtensions:
    """Load extensions of installed packages, then `files` (absolute), then the `functions` of an embedding program.

    `on_first` is called once before the first of them is loaded. Blocks for at most `MAX_LOAD_SECONDS` per extension
    that hangs. `tools` are the names already in use. A file contains a function `extend` that accepts a `Yarrow`; its
    directory is not on `sys.path`, so an extension of several files must be a package with an entry point in the group
    `yarrow.extensions`.

    If any extension is loaded, output to `sys.stdout` is redirected to standard error until `close`: standard output is
    reserved for the command's answer, which is written to the file descriptor. It stays redirected while an abandoned
    extension thread is running.
    """
    points, warnings = find_entry_points()
    if not (points or files or functions):
        return LoadedExtensions(Contributions(no_contributions().hooks, warnings=tuple(warnings)), (), None)
    from yarrow.extension import contribution_assembly

    if on_first is not None:
        on_first()
    imported = frozenset(sys.modules)
    printed, sys.stdout = sys.stdout, sys.stderr
    assembly = contribution_assembly.ContributionAssembly(tools, warnings)
    for point in points:
        assembly.load(contribution_assembly.from_entry_point(point))
    for file in dict.fromkeys(files):
        assembly.load(contribution_assembly.from_file(file))
    for function in functions:
        assembly.load(contribution_assembly.from_function(function))
    return LoadedExtensions(
        assembly.make_contributions(contribution_assembly.list_origins(files, points, imported)),
        assembly.hosts,
        printed,
    )


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
