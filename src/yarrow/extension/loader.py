"""Loads all extensions and combines their contributions; a failed one only causes a warning."""

import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from yarrow.agent.hooks import Contributions, no_contributions
from yarrow.extension.discovery import ExtensionFunction, find_entry_points

if TYPE_CHECKING:
    from yarrow.extension.host import ExtensionHost


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
    from yarrow.extension.assembly import ContributionAssembly, from_entry_point, from_file, from_function, list_origins

    if on_first is not None:
        on_first()
    imported = frozenset(sys.modules)
    printed, sys.stdout = sys.stdout, sys.stderr
    assembly = ContributionAssembly(tools, warnings)
    for point in points:
        assembly.load(from_entry_point(point))
    for file in dict.fromkeys(files):
        assembly.load(from_file(file))
    for function in functions:
        assembly.load(from_function(function))
    return LoadedExtensions(assembly.make_contributions(list_origins(files, points, imported)), assembly.hosts, printed)
