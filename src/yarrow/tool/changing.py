"""What `write` and `edit` share: the change of one file, planned as a whole before anything is touched."""

import threading
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from yarrow.tool.base import Done, Result, ToolContext, ToolFailed
from yarrow.tool.diff import change_counts
from yarrow.tool.limits import bounded_diff
from yarrow.tool.paths import locate, os_problem, unknown_home
from yarrow.tool.target import Target, opened


class Change(Struct, frozen=True):
    """New content for a file; `done` and `planned` tell of it after and before."""

    data: bytes
    done: str
    planned: str
    diff: str


Planned: TypeAlias = Change | Done | ToolFailed
"""What to do, or why there is nothing to do, or why it cannot be done."""
Plan: TypeAlias = Callable[[bytes | None], Planned]
"""Plans the change of a file by what it holds; None is a file that is not there."""


def make_change(path: str, context: ToolContext, stop: threading.Event, *, plan: Plan) -> Result:
    """Plan the change of a file and make it, unless `stop` was set meanwhile."""

    def make(target: Target, change: Change) -> Result:
        if not stop.is_set() and not target.replace(change.data):
            return ToolFailed(f"{path} was not changed: somebody else changed it at the same moment. Read it again.")
        return Done(f"{change.done} {_counts(change.diff)}.", bounded_diff(change.diff))

    return _planned(path, context, plan, then=make)


def tell_change(path: str, context: ToolContext, _stop: threading.Event, *, plan: Plan) -> Result:
    """Plan the change of a file, as `make_change` does, and tell it."""

    def tell(_target: Target, change: Change) -> Result:
        diff = bounded_diff(change.diff)
        return Done(f"{change.planned} {_counts(diff)}:\n{diff}", diff)

    return _planned(path, context, plan, then=tell)


def _planned(path: str, context: ToolContext, plan: Plan, *, then: Callable[[Target, Change], Result]) -> Result:
    if why := unknown_home(path, context.cwd):
        return ToolFailed(why)
    if path.endswith(("/", "/.")):  # which a Path forgets
        return ToolFailed(f"{path} is the path of a directory. Name a file.")
    try:
        with opened(locate(path, context.cwd), context.workspace) as target:
            if isinstance(target, ToolFailed):
                return target
            old = target.read()
            planned = old if isinstance(old, ToolFailed) else plan(old)
            return then(target, planned) if isinstance(planned, Change) else planned
    except OSError as error:
        return ToolFailed(os_problem(error, path))


def _counts(diff: str) -> str:
    added, removed = change_counts(diff)
    return f"(+{added} -{removed})"
