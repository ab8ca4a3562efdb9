"""Loads the extensions there are and puts together what they add; one that fails costs a warning."""

import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from yarrow.agent.contributions import Contributions, no_contributions
from yarrow.extension.discovery import ExtensionFunction, find_entry_points

if TYPE_CHECKING:
    from yarrow.extension.host import ExtensionHost


class LoadedExtensions:
    """What was loaded, and the threads it runs in."""

    def __init__(self, contributions: Contributions, hosts: Sequence["ExtensionHost"], printed: TextIO | None) -> None:
        self.contributions = contributions
        self._hosts = hosts
        self._stdout = printed

    async def close(self) -> None:
        """End the extensions; one that blocks is left behind after `host.MAX_CLOSE_SECONDS`. Idempotent."""
        import asyncio

        ended = await asyncio.gather(*(host.close() for host in self._hosts))
        if all(ended):
            self._restore_stdout()

    def abandon(self) -> None:
        """End the extensions where nothing was begun with them, without waiting for their threads."""
        for host in self._hosts:
            host.stop()
        self._restore_stdout()

    def _restore_stdout(self) -> None:
        if self._stdout is not None and sys.stdout is sys.stderr:
            sys.stdout = self._stdout

    @property
    def has_any(self) -> bool:
        """Whether there is any."""
        return bool(self._hosts)


def no_extensions() -> LoadedExtensions:
    """Return what there is where none are loaded, such as beside a service that runs elsewhere."""
    return LoadedExtensions(no_contributions(), (), None)


def load_extensions(
    files: Sequence[Path],
    *,
    functions: Sequence[ExtensionFunction] = (),
    tools: Collection[str] = (),
    on_first: Callable[[], object] | None = None,
) -> LoadedExtensions:
    """Load what installed packages offer, then `files` (absolute), then the `functions` of an embedding program.

    `on_first` is called once before any of them is loaded, if there is one. Blocks, for `MAX_LOAD_SECONDS` at most
    for each that hangs. `tools` are the names that are taken. A file holds a function `extend` that takes a `Yarrow`;
    its folder is not on `sys.path`, so what needs several files is written as a package with an entry point in the
    group `yarrow.extensions`.

    When there is any extension, what anybody prints to `sys.stdout` goes to standard error until `close`: standard
    output is the answer of the command line, which writes to its descriptor. It is not given back while a thread of an
    extension is left behind.
    """
    points, warnings = find_entry_points()
    if not (points or files or functions):
        return LoadedExtensions(Contributions(no_contributions().hooks, warnings=tuple(warnings)), (), None)
    from yarrow.extension.assembly import ContributionAssembly
    from yarrow.extension.origins import list_origins
    from yarrow.extension.sources import from_entry_point, from_file, from_function

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
