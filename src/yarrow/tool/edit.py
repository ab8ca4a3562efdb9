"""The tool `edit`: makes literal replacements in one file, all or none."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

from msgspec import Meta, Struct

from yarrow.tool.access import Access
from yarrow.tool.base import Progress, Result, ToolContext, ToolFailed
from yarrow.tool.diff import make_unified_diff
from yarrow.tool.file_change import ChangePlanner, FileChange, PlannedChange, apply_change, preview_change
from yarrow.tool.file_content import FALLBACK_ENCODING, SNIFF_BYTES, decode_text, find_binary_kind, is_utf16
from yarrow.tool.limits import pluralize
from yarrow.tool.paths import describe_missing, format_path, locate
from yarrow.tool.text_edit import EditMismatch, apply_edits
from yarrow.tool.text_edit import TextEdit as OneEdit
from yarrow.tool.worker_thread import run_in_thread


class EditArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `edit`."""

    path: str
    edits: Annotated[tuple[OneEdit, ...], Meta(min_length=1)]


class Edit:
    """Replaces texts in a file."""

    name = "edit"
    read_only = False
    arguments = EditArguments
    access = Access.file()

    async def run(self, arguments: EditArguments, context: ToolContext) -> AsyncIterator[Progress | Result]:
        """Yield the number of changed places and the diff."""
        yield await run_in_thread(partial(apply_change, arguments.path, context, plan=_plan_edit(arguments, context)))

    async def preview(self, arguments: EditArguments, context: ToolContext) -> Result:
        """Return the number of places that would change and the exact diff, or why the edits do not apply."""
        return await run_in_thread(
            partial(preview_change, arguments.path, context, plan=_plan_edit(arguments, context))
        )


def _plan_edit(arguments: EditArguments, context: ToolContext) -> ChangePlanner:
    path = locate(arguments.path, context.cwd)
    name = format_path(path, context.cwd)

    def plan(data: bytes | None) -> PlannedChange:
        if data is None:
            return ToolFailed(
                f"{describe_missing(context.workspace.suggestion_path(path), name)} To create a file, use write."
            )
        if kind := find_binary_kind(data[:SNIFF_BYTES]):
            return ToolFailed(f"{name} is {kind} and cannot be edited.")
        file = decode_text(data)
        if is_utf16(data) and file.encoding == FALLBACK_ENCODING:
            return ToolFailed(
                f"{name} cannot be edited: it has a UTF-16 BOM but ends in the middle of a character. "
                "Ask the user, or rewrite the whole file."
            )
        if "\0" in file.text:
            return ToolFailed(f"{name} is a binary file and cannot be edited.")
        outcome = apply_edits(file.text, arguments.edits)
        if isinstance(outcome, EditMismatch):
            return ToolFailed(f"{name} was not changed. {outcome.text}")
        text, count = outcome
        try:
            new = file.encode(text)
        except UnicodeEncodeError as error:
            return ToolFailed(
                f"{name} was not changed: it is not UTF-8 and is edited as Latin-1, which has no "
                f"{error.object[error.start : error.end]!r}."
            )
        diff = make_unified_diff(name, file.text, text)
        places = pluralize(count, "place") + (", as Latin-1," if file.encoding == FALLBACK_ENCODING else "")
        return FileChange(new, f"Changed {name} in {places}", f"Would change {name} in {places}", diff)

    return plan
