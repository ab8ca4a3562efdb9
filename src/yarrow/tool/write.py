"""The tool `write`: sets the whole content of one file."""

from collections.abc import AsyncIterator
from functools import partial

from msgspec import Struct

from yarrow.tool.atomic_file_change import ChangePlanner, FileChange, PlannedChange, apply_change, preview_change
from yarrow.tool.base import Access, Done, Progress, Result, ToolContext
from yarrow.tool.diff import make_unified_diff
from yarrow.tool.file_content import decode_text
from yarrow.tool.paths import format_path, locate
from yarrow.tool.result_limits import format_size
from yarrow.tool.worker_thread import run_in_thread


class WriteArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `write`."""

    path: str
    content: str


class Write:
    """Creates a file or replaces its content."""

    name = "write"
    read_only = False
    arguments = WriteArguments
    access = Access.file(creates_parents=True)

    async def run(self, arguments: WriteArguments, context: ToolContext) -> AsyncIterator[Progress | Result]:
        """Yield whether the file was created or replaced, and the diff."""
        yield await run_in_thread(partial(apply_change, arguments.path, context, plan=_plan_write(arguments, context)))

    async def preview(self, arguments: WriteArguments, context: ToolContext) -> Result:
        """Return whether the file would be created or replaced, and the exact diff."""
        return await run_in_thread(
            partial(preview_change, arguments.path, context, plan=_plan_write(arguments, context))
        )


def _plan_write(arguments: WriteArguments, context: ToolContext) -> ChangePlanner:
    name = format_path(locate(arguments.path, context.cwd), context.cwd)

    def plan(old: bytes | None) -> PlannedChange:
        data = arguments.content.encode()
        if old is None:
            diff = make_unified_diff(name, None, arguments.content)
            return FileChange(data, f"Created {name}", f"Would create {name}", diff)
        before = decode_text(old)
        if before.bom:  # the model never sees the BOM and so cannot mean to drop it or its encoding
            data = before.encode(arguments.content.removeprefix("\ufeff"))
        if data == old:
            return Done(f"{name} already has exactly this content; nothing was written.")
        diff = make_unified_diff(name, before.text, decode_text(data).text)
        size = format_size(len(old))
        return FileChange(data, f"Replaced {name}, which had {size},", f"Would replace {name}, which has {size},", diff)

    return plan
