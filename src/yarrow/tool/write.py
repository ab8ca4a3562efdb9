"""The tool `write`: the whole content of one file."""

from collections.abc import AsyncIterator
from functools import partial

from msgspec import Struct

from yarrow.tool.access import Access
from yarrow.tool.base import Done, Progress, Result, ToolContext
from yarrow.tool.changing import Change, Plan, Planned, make_change, tell_change
from yarrow.tool.content import decode
from yarrow.tool.diff import unified_diff
from yarrow.tool.limits import shown_size
from yarrow.tool.paths import locate, shown
from yarrow.tool.threads import in_thread


class WriteArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `write`."""

    path: str
    content: str


class Write:
    """Creates a file or replaces its content."""

    name = "write"
    read_only = False
    arguments = WriteArguments
    access = Access.file()

    async def run(self, arguments: WriteArguments, context: ToolContext) -> AsyncIterator[Progress | Result]:
        """Yield whether the file was created or replaced, and the diff."""
        yield await in_thread(partial(make_change, arguments.path, context, plan=_plan(arguments, context)))

    async def preview(self, arguments: WriteArguments, context: ToolContext) -> Result:
        """Return whether the file would be created or replaced, and the exact diff."""
        return await in_thread(partial(tell_change, arguments.path, context, plan=_plan(arguments, context)))


def _plan(arguments: WriteArguments, context: ToolContext) -> Plan:
    name = shown(locate(arguments.path, context.cwd), context.cwd)

    def plan(old: bytes | None) -> Planned:
        data = arguments.content.encode()
        if old is None:
            diff = unified_diff(name, None, arguments.content)
            return Change(data, f"Created {name}", f"Would create {name}", diff)
        before = decode(old)
        if before.bom:  # a model never sees it, and so cannot mean to drop it, nor the encoding that goes with it
            data = before.encode(arguments.content.removeprefix("\ufeff"))
        if data == old:
            return Done(f"{name} already holds exactly this; nothing was written.")
        diff = unified_diff(name, before.text, decode(data).text)
        size = shown_size(len(old))
        return Change(data, f"Replaced {name}, which had {size},", f"Would replace {name}, which has {size},", diff)

    return plan
