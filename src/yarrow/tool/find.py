"""The tool `find`: lists the files or directories that match a glob."""

import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec import Struct

from yarrow.platform import system
from yarrow.policy.refusal import Refused
from yarrow.policy.symlink_free_open import open_beneath
from yarrow.policy.workspace import Workspace
from yarrow.tool.base import Access, Done, Progress, Result, ToolContext, ToolFailed
from yarrow.tool.gitignore_walk import walk
from yarrow.tool.globs import Glob, describe_scope
from yarrow.tool.paths import describe_missing, describe_os_error, locate, make_prefix, quote_path
from yarrow.tool.result_limits import Smallest
from yarrow.tool.ripgrep import RipgrepError, find_ripgrep, list_files_with_ripgrep
from yarrow.tool.search_hits import MAX_SEARCH_SECONDS
from yarrow.tool.worker_thread import run_in_thread

DEFAULT_FIND_LIMIT = 1_000
"""Default maximum of paths shown."""


class FindArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `find`."""

    pattern: str
    path: str = "."
    type: Literal["file", "directory"] = "file"
    limit: int = DEFAULT_FIND_LIMIT


class Find:
    """Finds files by name."""

    name = "find"
    read_only = True
    arguments = FindArguments
    access = Access.file()

    async def run(self, arguments: FindArguments, context: ToolContext) -> AsyncIterator[Progress | Result]:
        """Yield the sorted paths, directories with a trailing slash."""
        search = await run_in_thread(partial(_prepare_search, arguments, context))
        if isinstance(search, ToolFailed):
            yield search
            return
        program = None if context.dry_run or arguments.type != "file" else find_ripgrep(context.workspace)
        if program is None or not await search.search_with_ripgrep(program):
            await run_in_thread(search.search_in_process)
        yield search.make_result()

    async def preview(self, arguments: FindArguments, context: ToolContext) -> Result:
        """Describe what would be searched for."""
        return Done(f"Would search {arguments.path} in {context.cwd} for names matching {arguments.pattern!r}.")


def _prepare_search(
    arguments: FindArguments, context: ToolContext, _stop: threading.Event
) -> "_FindSearch | ToolFailed":
    path = locate(arguments.path, context.cwd)
    real = context.workspace.resolve_read(path)
    if isinstance(real, Refused):
        return ToolFailed(real.text)
    try:
        if not real.exists():
            return ToolFailed(describe_missing(path, arguments.path))
    except OSError as error:  # name too long, or directory not accessible
        return ToolFailed(describe_os_error(error, arguments.path))
    if not real.is_dir():
        return ToolFailed(f"{arguments.path} is not a directory.")
    glob = Glob(arguments.pattern, real, path)
    return _FindSearch(arguments, real, make_prefix(path, context.cwd), workspace=context.workspace, glob=glob)


def _list_names(directory: Path) -> set[str]:
    """Return the names in a directory reached without symlinks. Raises OSError."""
    descriptor = open_beneath(Path(directory.anchor), directory, os.O_RDONLY | system.DIRECTORY)
    try:
        return set(system.listdir_at(descriptor))
    finally:
        os.close(descriptor)


class _FindSearch:
    """One search, by ripgrep or in this process, with the same result."""

    def __init__(self, arguments: FindArguments, root: Path, prefix: str, *, workspace: Workspace, glob: Glob) -> None:
        self._arguments = arguments
        self._prefix = prefix
        self._root = root
        self._workspace = workspace
        self._linked = workspace.secret_links()
        self._keys = workspace.credential_paths()
        self._glob = glob
        self._was_slow = False
        self._start()

    def _start(self) -> None:
        self._found: Smallest[list[str]] = Smallest(max(1, self._arguments.limit))
        self._secrets = 0
        self._closed = 0

    async def search_with_ripgrep(self, program: str) -> bool:
        """Search; return False if ripgrep failed, so that `search_in_process` must be called."""
        try:
            async with aclosing(list_files_with_ripgrep(program, self._root)) as paths:
                async for path in paths:
                    self._add_path(path)
        except RipgrepError as error:
            self._was_slow = error.timed_out
            return error.timed_out
        return await run_in_thread(self._all_exist)

    def _all_exist(self, _stop: threading.Event) -> bool:
        """Return whether all paths to show are free of symlinks: ripgrep may have followed one that is gone now."""
        kept = self._found.list_smallest()
        try:
            known = {above: _list_names(self._root.joinpath(*above)) for above in {tuple(names[:-1]) for names in kept}}
        except OSError:
            return False
        return all(names[-1] in known[tuple(names[:-1])] for names in kept)

    def search_in_process(self, stop: threading.Event) -> None:
        """Search from the start."""
        self._start()
        deadline = time.monotonic() + MAX_SEARCH_SECONDS
        for entry in walk(self._root, stop):
            if time.monotonic() > deadline:
                self._was_slow = True
                return
            if entry.is_dir == (self._arguments.type == "directory"):
                self._add_path(entry.path)

    def make_result(self) -> Result:
        """Return the result so far."""
        slash = "/" if self._arguments.type == "directory" else ""
        lines = [quote_path(f"{self._prefix}{'/'.join(names)}{slash}") for names in self._found.list_smallest()]
        if not lines:
            lines = [f"No matches for {self._arguments.pattern!r}."]
            note = describe_scope(self._arguments.pattern)
            lines += [f"[{note}]"] if note else []
        elif len(lines) < self._found.count:
            lines.append(f"[{len(lines):,} of {self._found.count:,}; narrow the pattern or set limit]")
        if self._secrets:
            lines.append(f"[{self._secrets:,} left out: files such as .env contain secrets]")
        if self._closed:
            lines.append(f"[{self._closed:,} left out: denied by the user's settings]")
        if self._was_slow:
            lines.append(f"[stopped after {MAX_SEARCH_SECONDS:g} s; narrow the path]")
        return Done("\n".join(lines))

    def _add_path(self, path: str) -> None:
        if not self._glob.matches(path):
            return
        real = f"{self._root}/{path}"
        is_secret = self._arguments.type == "file" and (self._workspace.is_secret_name(real) or self._linked.has(real))
        if is_secret or self._keys.has(real):
            self._secrets += 1
        elif self._workspace.is_excluded(real):
            self._closed += 1
        else:
            self._found.add(path.split("/"))
