"""The tool `ls`: lists the names in one directory."""

import os
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

from msgspec import Struct

from yarrow.platform import system
from yarrow.policy.refusal import Refused
from yarrow.policy.symlink_free_open import READ_FLAGS
from yarrow.tool.base import Access, Done, Progress, Result, ToolContext, ToolFailed
from yarrow.tool.paths import describe_missing, describe_os_error, locate, quote_path
from yarrow.tool.result_limits import Smallest
from yarrow.tool.worker_thread import run_in_thread

DEFAULT_LS_LIMIT = 500
"""Default maximum of names shown."""


class LsArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `ls`."""

    path: str = "."
    limit: int = DEFAULT_LS_LIMIT


class Ls:
    """Lists a directory."""

    name = "ls"
    read_only = True
    arguments = LsArguments
    access = Access.file()

    async def run(self, arguments: LsArguments, context: ToolContext) -> AsyncIterator[Progress | Result]:
        """Yield the sorted names, directories with a trailing slash."""
        yield await run_in_thread(partial(self._list, arguments, context))

    async def preview(self, arguments: LsArguments, context: ToolContext) -> Result:
        """Describe what would be listed."""
        return Done(f"Would list {arguments.path} in {context.cwd}.")

    def _list(self, arguments: LsArguments, context: ToolContext, _stop: threading.Event) -> Result:
        path = locate(arguments.path, context.cwd)
        try:
            descriptor = context.workspace.open_read(path, READ_FLAGS | system.DIRECTORY)
            if isinstance(descriptor, Refused):
                return ToolFailed(descriptor.text)
            try:
                return Done(format_listing(descriptor, max(1, arguments.limit), make_closed_filter(path, context)))
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return ToolFailed(describe_missing(path, arguments.path))
        except NotADirectoryError:
            return ToolFailed(f"{arguments.path} is not a directory. To read a file, use read.")
        except OSError as error:
            return ToolFailed(describe_os_error(error, arguments.path))


def make_closed_filter(directory: Path, context: ToolContext) -> Callable[[str], bool]:
    """Return a predicate: whether the permission rules of the settings exclude a name in a directory."""
    real = context.workspace.realpath(directory)
    return lambda name: context.workspace.is_excluded(os.path.join(real, name))  # noqa: PTH118 (maybe a million names)


def format_listing(directory: int, limit: int, is_left_out: Callable[[str], bool]) -> str:
    """Return the first `limit` names of an open directory, one per line, and their total. Raises OSError."""
    names: Smallest[str] = Smallest(limit)
    left_out = 0
    with system.scandir_at(directory) as entries:
        for entry in entries:
            if is_left_out(entry.name):
                left_out += 1
            else:
                names.add(entry.name + ("/" if _is_directory(entry) else ""))
    lines = [quote_path(name) for name in names.list_smallest()] or ["[the directory is empty]"][left_out:]
    if names.count > limit:
        lines.append(f"[{limit:,} of {names.count:,} names; set limit to see more]")
    if left_out:
        lines.append(f"[{left_out:,} left out: denied by the user's settings]")
    return "\n".join(lines)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a symlink loop, or a target that is not accessible
        return False
