"""What `write` and `edit` share: the change of one file, planned as a whole before anything is touched."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from yarrow.policy.workspace import Refused
from yarrow.tool.base import Done, Result, ToolContext, ToolFailed
from yarrow.tool.diff import change_counts
from yarrow.tool.limits import bounded_diff
from yarrow.tool.paths import locate, os_problem, unknown_home
from yarrow.tool.replacing import replace_file

CHANGED_BYTES = 33_554_432
"""The largest file that is edited or replaced; 32 MiB."""


class Change(Struct, frozen=True):
    """New content for a file; `done` and `planned` tell of it after and before."""

    data: bytes
    done: str
    planned: str
    diff: str


Planned: TypeAlias = Change | Done | ToolFailed
"""What to do, or why there is nothing to do, or why it cannot be done."""
Plan: TypeAlias = Callable[[Path], Planned]
"""Plans the change of a real path that may be written. May raise OSError."""


def make_change(path: str, context: ToolContext, stop: threading.Event, *, plan: Plan) -> Result:
    """Plan the change of a file and make it, unless `stop` was set meanwhile."""
    real = _writable(path, context)
    if isinstance(real, ToolFailed):
        return real
    try:
        planned = plan(real)
        if not isinstance(planned, Change):
            return planned
        if not stop.is_set():
            replace_file(real, planned.data)
    except OSError as error:
        return ToolFailed(os_problem(error, path))
    return Done(f"{planned.done} {_counts(planned.diff)}.", bounded_diff(planned.diff))


def tell_change(path: str, context: ToolContext, _stop: threading.Event, *, plan: Plan) -> Result:
    """Plan the change of a file, as `make_change` does, and tell it."""
    real = _writable(path, context)
    if isinstance(real, ToolFailed):
        return real
    try:
        planned = plan(real)
    except OSError as error:
        return ToolFailed(os_problem(error, path))
    if not isinstance(planned, Change):
        return planned
    diff = bounded_diff(planned.diff)
    return Done(f"{planned.planned} {_counts(diff)}:\n{diff}", diff)


def current_bytes(real: Path) -> bytes | None | ToolFailed:
    """Return what a file holds, None when it can be made, or why it cannot be changed. Raises OSError."""
    if not real.exists():
        parent = next(parent for parent in real.parents if parent.exists())
        return None if parent.is_dir() else ToolFailed(f"{parent} is a file, not a directory.")
    if not real.is_file():
        return ToolFailed(f"{real} is {'a directory' if real.is_dir() else 'not a regular file'}.")
    if not os.access(real, os.W_OK):
        return ToolFailed(f"{real} is read-only. Change its mode first, if the user agrees.")
    size = real.stat().st_size
    if size > CHANGED_BYTES:
        return ToolFailed(f"{real} has {size:,} bytes; the most is {CHANGED_BYTES:,}. Use bash.")
    return real.read_bytes()


def _writable(path: str, context: ToolContext) -> Path | ToolFailed:
    if why := unknown_home(path, context.cwd):
        return ToolFailed(why)
    real = context.workspace.resolve_write(locate(path, context.cwd))
    return ToolFailed(real.text) if isinstance(real, Refused) else real


def _counts(diff: str) -> str:
    added, removed = change_counts(diff)
    return f"(+{added} -{removed})"
