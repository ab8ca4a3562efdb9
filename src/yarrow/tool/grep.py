"""The tool `grep`: finds the lines of files that match a pattern."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path

from msgspec import Struct

from yarrow.policy.refusal import Refused
from yarrow.policy.workspace import Workspace
from yarrow.tool.base import Access, Done, Progress, Result, ToolContext, ToolFailed
from yarrow.tool.globs import Glob, describe_scope
from yarrow.tool.paths import describe_missing, describe_os_error, locate, make_prefix, quote_path
from yarrow.tool.ripgrep import RipgrepError, find_hits_with_ripgrep, find_ripgrep, list_files_with_ripgrep
from yarrow.tool.search_hits import MAX_SEARCH_SECONDS, MAX_SEARCHED_BYTES, FileHits, HitReport, SearchQuery
from yarrow.tool.worker_thread import run_in_thread

DEFAULT_GREP_LIMIT = 100
"""Default maximum of matching lines shown."""
MAX_CONTEXT_LINES = 50
CONFIRM_BATCH_FILES = 64
"""Files whose hits are confirmed in one batch; at most this many are pending."""
SIZE_BATCH_FILES = 4_096
"""Files whose size is read in one batch; at most this many are pending."""
LINE_FEED_PATTERN = r"(?<!\\)(?:\\\\)*\\n"
"""A line feed escape in a pattern."""
TIMEOUT_NOTE = f"stopped after {MAX_SEARCH_SECONDS:g} s; narrow the search"


class GrepArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `grep`; `context` is the number of lines before and after each match."""

    pattern: str
    path: str = "."
    glob: str = ""
    ignore_case: bool = False
    literal: bool = False
    context: int = 0
    limit: int = DEFAULT_GREP_LIMIT


class Grep:
    """Searches the content of files."""

    name = "grep"
    read_only = True
    arguments = GrepArguments
    access = Access.file()

    async def run(self, arguments: GrepArguments, context: ToolContext) -> AsyncIterator[Progress | Result]:
        """Yield the matching lines as `path:line:text`, sorted by path."""
        search = await run_in_thread(partial(_prepare_search, arguments, context))
        if isinstance(search, ToolFailed):
            yield search
            return
        program = None if context.dry_run else find_ripgrep(context.workspace)
        if program is None or not await search.search_with_ripgrep(program):
            yield await run_in_thread(search.search_in_process)
        else:
            yield search.make_result()

    async def preview(self, arguments: GrepArguments, context: ToolContext) -> Result:
        """Describe what would be searched."""
        return Done(f"Would search {arguments.path} in {context.cwd} for {arguments.pattern!r}.")


def _prepare_search(
    arguments: GrepArguments, context: ToolContext, _stop: threading.Event
) -> "_GrepSearch | ToolFailed":
    try:
        return _make_search(arguments, context)
    except OSError as error:
        return ToolFailed(describe_os_error(error, arguments.path))


def _make_search(arguments: GrepArguments, context: ToolContext) -> "_GrepSearch | ToolFailed":
    path = locate(arguments.path, context.cwd)
    real = context.workspace.resolve_read(path)
    if isinstance(real, Refused):
        return ToolFailed(real.text)
    if not real.exists():
        return ToolFailed(describe_missing(path, arguments.path))
    if not real.is_file() and not real.is_dir():
        return ToolFailed(f"{arguments.path} is not a regular file.")
    if real.is_file() and real.stat().st_size > MAX_SEARCHED_BYTES:
        return ToolFailed(f"{arguments.path} is larger than {MAX_SEARCHED_BYTES:,} bytes. Use bash to search it.")
    if not arguments.pattern:
        return ToolFailed("The pattern is empty.")
    if "\n" in arguments.pattern or (not arguments.literal and re.search(LINE_FEED_PATTERN, arguments.pattern)):
        return ToolFailed("A pattern matches within one line; search for one of the lines and set context.")
    prefix = make_prefix(path if real.is_dir() else path.parent, context.cwd)
    glob = Glob(arguments.glob, real, path) if arguments.glob and real.is_dir() else None
    return _GrepSearch(arguments, real, prefix, context=context, glob=glob)


class _GrepSearch:
    """One search, by ripgrep or in this process, with the same result."""

    def __init__(
        self, arguments: GrepArguments, target: Path, prefix: str, *, context: ToolContext, glob: Glob | None
    ) -> None:
        from yarrow.tool.python_search import LargeFiles

        workspace = context.workspace
        self._arguments = arguments
        self._query = SearchQuery(
            pattern=arguments.pattern,
            literal=arguments.literal,
            ignore_case=arguments.ignore_case,
            context=min(max(0, arguments.context), MAX_CONTEXT_LINES),
            limit=max(1, arguments.limit),
        )
        self._target = target
        self._workspace = workspace
        self._linked = workspace.secret_links()
        self._keys = workspace.credential_paths()
        self._is_file = target.is_file()
        self._glob = glob
        self._large = LargeFiles(prefix)
        self._is_partial = False
        """True if the search ended early, so that the list of large files is incomplete."""
        self._prefix = prefix
        self._output_filter = context.output_filter
        self._report = HitReport(self._query, prefix, self._output_filter)
        self._notes = [] if self._is_file else _list_notes(target, workspace)

    async def search_with_ripgrep(self, program: str) -> bool:
        """Search; return False if ripgrep failed, so that `search_in_process` must be called."""
        # Ripgrep's own glob option overrides ignore files, so it only gets plain names.
        glob = self._arguments.glob
        globs = (glob,) if self._glob and re.fullmatch(r"[\w.*?-]+", glob) else ()
        if self._is_file:
            return await self._collect_hits(program, globs)
        async with asyncio.TaskGroup() as group:
            # Ripgrep does not report the files it skipped for their size.
            listing = group.create_task(self._list_large(program, globs))
            is_done = await self._collect_hits(program, globs)
            if self._is_partial or not is_done:
                listing.cancel()
        return is_done

    async def _collect_hits(self, program: str, globs: tuple[str, ...]) -> bool:
        waiting: list[FileHits] = []
        try:
            async with aclosing(find_hits_with_ripgrep(program, self._target, self._query, globs=globs)) as found:
                async for hits in found:
                    waiting += [hits] if self._is_wanted(hits.path) else []
                    if len(waiting) == CONFIRM_BATCH_FILES:
                        if not await run_in_thread(partial(self._report_hits, waiting)):
                            return True
                        waiting.clear()
        except RipgrepError as error:
            if not error.timed_out:
                return False
            self._is_partial = True
            self._notes.append(TIMEOUT_NOTE)
        await run_in_thread(partial(self._report_hits, waiting))
        return True

    async def _list_large(self, program: str, globs: tuple[str, ...]) -> None:
        """List the files that are too large to search."""
        names: list[str] = []
        try:
            async with aclosing(list_files_with_ripgrep(program, self._target, globs=globs)) as paths:
                async for path in paths:
                    names.append(path)
                    if len(names) == SIZE_BATCH_FILES:
                        await self._add_large(names)
                        names.clear()
        except RipgrepError:
            self._is_partial = True
        await self._add_large(names)

    async def _add_large(self, names: list[str]) -> None:
        await run_in_thread(lambda _stop: self._large.add_from(self._target, names, self._is_wanted))

    def _report_hits(self, waiting: list[FileHits], stop: threading.Event) -> bool:
        """Report the hits that can be confirmed; return whether more are wanted."""
        for hits in waiting:
            confirmed = self._confirm_hits(hits, stop)
            if confirmed is not None and not self._report.add(confirmed):
                self._is_partial = True
                return False
        return not stop.is_set()

    def _confirm_hits(self, hits: FileHits, stop: threading.Event) -> FileHits | None:
        """Return the hits if the file contains them, else search it again.

        Ripgrep opens paths that may have become symlinks meanwhile; hits behind one must not be shown.
        """
        from yarrow.tool.python_search import Searcher, SearchError, contains_hits

        path = self._target if self._is_file else self._target / hits.path
        if contains_hits(path, hits):
            return hits
        with suppress(SearchError):
            return Searcher(self._query).search(path, hits.path, stop)
        return None

    def search_in_process(self, stop: threading.Event) -> Result:
        """Search from the start and return the result."""
        from yarrow.tool.python_search import (  # only without ripgrep
            LargeFiles,
            Searcher,
            SearchError,
            search_directory,
        )

        self._report, self._large = HitReport(self._query, self._prefix, self._output_filter), LargeFiles(self._prefix)
        self._is_partial = False
        try:
            searcher = Searcher(self._query, self._large)
            if self._is_file:
                hits = searcher.search(self._target, self._target.name, stop)
                if hits is not None:
                    self._report.add(hits)
                return self.make_result()
            for hits in search_directory(self._target, searcher, stop, wanted=self._is_wanted):
                if not self._report.add(hits):
                    self._is_partial = True
                    break
        except SearchError as error:
            return ToolFailed(str(error))
        except TimeoutError:
            self._is_partial = True
            self._notes.append(TIMEOUT_NOTE)
        return self.make_result()

    def make_result(self) -> Result:
        """Return the result so far."""
        glob_note = describe_scope(self._arguments.glob) if self._glob and self._report.is_empty() else ""
        notes = [note for note in ("" if self._is_partial else self._large.format_note(), glob_note) if note]
        return Done(self._report.format([*self._notes, *notes]))

    def _is_wanted(self, path: str) -> bool:
        real = str(self._target) if self._is_file else f"{self._target}/{path}"
        if self._workspace.is_secret_name(real) or (self._glob and not self._glob.matches(path)):
            return False
        return self._is_file or not (
            self._linked.has(real) or self._keys.has(real) or self._workspace.is_excluded(real)
        )


def _list_notes(directory: Path, workspace: Workspace) -> list[str]:
    """Return notes about excluded files. Only names are examined: the content must not influence the result."""
    secret = (path for path in directory.iterdir() if workspace.is_secret_name(str(path)))
    names = sorted(quote_path(path.name) for path in secret if path.is_symlink() or not path.is_dir())
    secrets = f"{', '.join(names)} not searched: may contain secrets" if names else ""
    return [note for note in (secrets, workspace.denied.notice()) if note]
