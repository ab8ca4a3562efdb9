"""Lists the files that a beginning of a path can mean, the nearest ones first, for a person who is typing one."""

import threading
import time
from pathlib import Path

from msgspec import Struct

from yarrow.policy.workspace import Workspace
from yarrow.tool.directory_walk import walk
from yarrow.tool.limits import Smallest
from yarrow.tool.paths import quote_path

MAX_LISTING_SECONDS = 2.0
"""How long is looked; somebody waits for it with a finger on a key."""


class FileCompletions(Struct, frozen=True):
    """Paths as the prefix begins them, a directory's with a slash behind it, and whether there are more."""

    paths: tuple[str, ...]
    has_more: bool = False


def complete_files(
    directory: Path, prefix: str, stop: threading.Event, *, limit: int, workspace: Workspace
) -> FileCompletions:
    """Return what begins with `prefix`, as a path or, without a slash, by its name; at most `limit` paths.

    `directory` is the real one of what goes before the last slash of the prefix. Ignore files are honoured, though
    not for that directory itself; what file tools leave out of `workspace` is left out here. After
    `MAX_LISTING_SECONDS` it is what was found until then, and there may be more.
    """
    below, slash, name = prefix.rpartition("/")
    found: Smallest[list[str]] = Smallest(limit)
    linked = workspace.secret_links()
    deadline = time.monotonic() + MAX_LISTING_SECONDS
    for entry in walk(directory, stop):
        if time.monotonic() > deadline:
            return FileCompletions(_quote_paths(found), has_more=True)
        *above, last = entry.path.split("/")
        # By its name alone a file is meant wherever it lies; with a slash the path says where.
        is_meant = entry.path.startswith(name) or (not slash and last.startswith(name))
        if not is_meant or workspace.is_excluded(real := f"{directory}/{entry.path}"):
            continue
        if entry.is_dir or not (workspace.is_secret_name(real) or linked.has(real)):
            # The nearest first: fewer names before more.
            found.add([f"{len(above):04}", f"{below}{slash}{entry.path}{'/' * entry.is_dir}"])
    return FileCompletions(_quote_paths(found), has_more=found.count > limit)


def _quote_paths(found: Smallest[list[str]]) -> tuple[str, ...]:
    return tuple(quote_path(path) for _, path in found.list_smallest())
