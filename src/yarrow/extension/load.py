"""Loads the extensions there are and puts together what they add; one that fails costs a warning."""

import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from yarrow.agent.contributions import Contributions, no_contributions
from yarrow.extension.discovery import entry_points

if TYPE_CHECKING:
    from yarrow.extension.api import Yarrow
    from yarrow.extension.host import Host

ExtensionFunction = Callable[["Yarrow"], Any]
"""Registers what an extension adds; may be async."""


class Extensions:
    """What was loaded, and the threads it runs in."""

    def __init__(self, added: Contributions, hosts: Sequence["Host"], printed: TextIO | None) -> None:
        self.added = added
        self._hosts = hosts
        self._printed = printed

    async def close(self) -> None:
        """End the extensions; one that blocks is left behind after `host.CLOSE_SECONDS`. Idempotent."""
        import asyncio

        ended = await asyncio.gather(*(host.close() for host in self._hosts))
        if all(ended):
            self._give_back()

    def abandon(self) -> None:
        """End the extensions where nothing was begun with them, without waiting for their threads."""
        for host in self._hosts:
            host.end()
        self._give_back()

    def _give_back(self) -> None:
        if self._printed is not None and sys.stdout is sys.stderr:
            sys.stdout = self._printed

    @property
    def loaded(self) -> bool:
        """Whether there is any."""
        return bool(self._hosts)


def no_extensions() -> Extensions:
    """Return what there is where none are loaded, such as beside a service that runs elsewhere."""
    return Extensions(no_contributions(), (), None)


def load(
    files: Sequence[Path],
    *,
    given: Sequence[ExtensionFunction] = (),
    tools: Collection[str] = (),
    before: Callable[[], object] | None = None,
) -> Extensions:
    """Load what installed packages offer, then `files` (absolute), then the functions `given` by an embedding program.

    `before` is called once before any of them is loaded, if there is one. Blocks, for `assembly.LOAD_SECONDS` at most
    for each that hangs. `tools` are the names that are taken. A file holds a function `extend` that takes a `Yarrow`;
    its folder is not on `sys.path`, so what needs several files is written as a package with an entry point in the
    group `yarrow.extensions`.

    When there is any extension, what anybody prints to `sys.stdout` goes to standard error until `close`: standard
    output is the answer of the command line, which writes to its descriptor. It is not given back while a thread of an
    extension is left behind.
    """
    points, warnings = entry_points()
    if not (points or files or given):
        return Extensions(Contributions(no_contributions().hooks, warnings=tuple(warnings)), (), None)
    from yarrow.extension.assembly import Assembly
    from yarrow.extension.origins import origins
    from yarrow.extension.sources import from_entry_point, from_file, from_function

    if before is not None:
        before()
    imported = frozenset(sys.modules)
    printed, sys.stdout = sys.stdout, sys.stderr
    assembly = Assembly(tools, warnings)
    for point in points:
        assembly.load(from_entry_point(point))
    for file in dict.fromkeys(files):
        assembly.load(from_file(file))
    for function in given:
        assembly.load(from_function(function))
    return Extensions(assembly.added(origins(files, points, imported)), assembly.hosts, printed)
