"""What `write` and `edit` share: the change of one file, planned as a whole before anything is touched."""

import threading
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from yarrow.tool.base import Done, Result, ToolContext, ToolFailed
from yarrow.tool.diff import count_changes
from yarrow.tool.limits import limit_diff
from yarrow.tool.paths import check_home, describe_os_error, locate
from yarrow.tool.writable_file import WritableFile, open_writable


class FileChange(Struct, frozen=True):
    """New content for a file; `done` and `planned` tell of it after and before."""

    data: bytes
    done: str
    planned: str
    diff: str


PlannedChange: TypeAlias = FileChange | Done | ToolFailed
"""What to do, or why there is nothing to do, or why it cannot be done."""
ChangePlanner: TypeAlias = Callable[[bytes | None], PlannedChange]
"""Plans the change of a file by what it holds; None is a file that is not there."""


def apply_change(path: str, context: ToolContext, stop: threading.Event, *, plan: ChangePlanner) -> Result:
    """Plan the change of a file and make it, unless `stop` was set meanwhile."""

    def make(target: WritableFile, change: FileChange) -> Result:
        if not stop.is_set() and not target.replace(change.data):
            return ToolFailed(f"{path} was not changed: somebody else changed it at the same moment. Read it again.")
        return Done(f"{change.done} {_format_counts(change.diff)}.", limit_diff(change.diff))

    return _plan_change(path, context, plan, then=make)


def preview_change(path: str, context: ToolContext, _stop: threading.Event, *, plan: ChangePlanner) -> Result:
    """Plan the change of a file, as `make_change` does, and tell it."""

    def tell(_target: WritableFile, change: FileChange) -> Result:
        diff = limit_diff(change.diff)
        return Done(f"{change.planned} {_format_counts(diff)}:\n{diff}", diff)

    return _plan_change(path, context, plan, then=tell)


def _plan_change(
    path: str, context: ToolContext, plan: ChangePlanner, *, then: Callable[[WritableFile, FileChange], Result]
) -> Result:
    if why := check_home(path, context.cwd):
        return ToolFailed(why)
    if path.endswith(("/", "/.")):  # which a Path forgets
        return ToolFailed(f"{path} is the path of a directory. Name a file.")
    try:
        with open_writable(locate(path, context.cwd), context.workspace) as target:
            if isinstance(target, ToolFailed):
                return target
            old = target.read()
            planned = old if isinstance(old, ToolFailed) else plan(old)
            return then(target, planned) if isinstance(planned, FileChange) else planned
    except OSError as error:
        return ToolFailed(describe_os_error(error, path))


def _format_counts(diff: str) -> str:
    added, removed = count_changes(diff)
    return f"(+{added} -{removed})"
