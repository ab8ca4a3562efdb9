"""Completion of a file path that the user is typing; the nearest files come first."""

import threading
import time
from pathlib import Path

from msgspec import Struct

from yarrow.policy.workspace import Workspace
from yarrow.tool.gitignore_walk import walk
from yarrow.tool.paths import quote_path
from yarrow.tool.result_limits import Smallest

MAX_LISTING_SECONDS = 2.0
"""Time limit of a search in seconds; the user waits for it while typing."""


class FileCompletions(Struct, frozen=True):
    """Completed paths, directories with a trailing slash, and whether more exist."""

    paths: tuple[str, ...]
    has_more: bool = False


def complete_files(
    directory: Path, prefix: str, stop: threading.Event, *, limit: int, workspace: Workspace
) -> FileCompletions:
    """Return at most `limit` paths that start with `prefix` or, if it has no slash, whose last name does.

    `directory` is the real directory of everything before the last slash of the prefix. Ignore files apply, except to
    that directory itself; paths that file tools exclude from `workspace` are omitted. After `MAX_LISTING_SECONDS` the
    result is incomplete and `has_more` is set.
    """
    below, slash, name = prefix.rpartition("/")
    found: Smallest[list[str]] = Smallest(limit)
    linked = workspace.secret_links()
    deadline = time.monotonic() + MAX_LISTING_SECONDS
    for entry in walk(directory, stop):
        if time.monotonic() > deadline:
            return FileCompletions(_quote_paths(found), has_more=True)
        *above, last = entry.path.split("/")
        # A bare name matches at any depth; a slash makes it a path.
        is_meant = entry.path.startswith(name) or (not slash and last.startswith(name))
        if not is_meant or workspace.is_excluded(real := f"{directory}/{entry.path}"):
            continue
        if entry.is_dir or not (workspace.is_secret_name(real) or linked.has(real)):
            # Nearest first: fewer parent directories.
            found.add([f"{len(above):04}", f"{below}{slash}{entry.path}{'/' * entry.is_dir}"])
    return FileCompletions(_quote_paths(found), has_more=found.count > limit)


def _quote_paths(found: Smallest[list[str]]) -> tuple[str, ...]:
    return tuple(quote_path(path) for _, path in found.list_smallest())
