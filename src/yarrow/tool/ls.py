"""The tool `ls`: the names in one directory."""

import os
import threading
from collections.abc import AsyncIterator
from functools import partial

from msgspec import Struct

from yarrow.policy.workspace import READING, Refused
from yarrow.tool.base import Done, Progress, Result, ToolContext, ToolFailed
from yarrow.tool.limits import Smallest
from yarrow.tool.names import told
from yarrow.tool.paths import locate, missing, os_problem
from yarrow.tool.threads import in_thread

LS_LIMIT = 500
"""Names shown unless the call says otherwise."""


class LsArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `ls`."""

    path: str = "."
    limit: int = LS_LIMIT


class Ls:
    """Lists a directory."""

    name = "ls"
    read_only = True
    arguments = LsArguments

    async def run(self, arguments: LsArguments, context: ToolContext) -> AsyncIterator[Progress | Result]:
        """Yield the names, sorted, a directory's with a slash behind it."""
        yield await in_thread(partial(self._list, arguments, context))

    async def preview(self, arguments: LsArguments, context: ToolContext) -> Result:
        """Say what would be listed."""
        return Done(f"Would list {arguments.path} in {context.cwd}.")

    def _list(self, arguments: LsArguments, context: ToolContext, _stop: threading.Event) -> Result:
        path = locate(arguments.path, context.cwd)
        try:
            descriptor = context.workspace.open_read(path, READING | os.O_DIRECTORY)
            if isinstance(descriptor, Refused):
                return ToolFailed(descriptor.text)
            try:
                return Done(listing(descriptor, max(1, arguments.limit)))
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return ToolFailed(missing(path, arguments.path))
        except NotADirectoryError:
            return ToolFailed(f"{arguments.path} is not a directory. Use read for a file.")
        except OSError as error:
            return ToolFailed(os_problem(error, arguments.path))


def listing(directory: int, limit: int) -> str:
    """Return the first `limit` names of an open directory, one a line, and how many there are. Raises OSError."""
    names: Smallest[str] = Smallest(limit)
    with os.scandir(directory) as entries:
        for entry in entries:
            names.add(entry.name + ("/" if entry.is_dir() else ""))
    text = "\n".join(told(name) for name in names.kept()) or "[the directory is empty]"
    return text if names.count <= limit else f"{text}\n[{limit:,} of {names.count:,} names; set limit to see more]"
