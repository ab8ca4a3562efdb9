"""Traces of a run in files that other tools execute, named in one notice at its end."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import msgspec

from yarrow.agent.ports import Equipment
from yarrow.event.events import Notice
from yarrow.message import ToolCall
from yarrow.policy.executed import changed, is_executed, look
from yarrow.policy.permission.request import Kind
from yarrow.tool.access import Access
from yarrow.tool.base import Done, Progress, Result, ToolContext
from yarrow.tool.paths import locate, shown

NAMED = 10
"""Files named in the notice; the others are counted."""
MOST_FILES = 1_000
"""Files remembered of one run; later ones are not counted."""


class Traces:
    """Files of one run that other tools execute."""

    def __init__(self) -> None:
        self._files: dict[str, None] = {}

    async def left_by(
        self, pieces: AsyncGenerator[Progress | Result], call: ToolCall, equipment: Equipment
    ) -> AsyncGenerator[Progress | Result]:
        """Pass on what a tool yields, and note which of those files it wrote."""
        access, context = equipment.registry.access(call.name), equipment.context
        named = _named(call, access)
        roots = _roots(context, named.get(access.directory, ""))
        before = await asyncio.to_thread(look, roots)
        result: Progress | Result | None = None
        try:
            async with aclosing(pieces):
                async for result in pieces:
                    yield result
        finally:
            self._add(changed(before, look(roots)), context)
            # Deeper in the tree than the table is looked at.
            if access.kind is Kind.FILE and isinstance(result, Done) and (path := named.get(access.argument)):
                self._add([str(real) for real in [_real(path, context)] if _is_executed(real, roots)], context)

    def notice(self) -> Notice | None:
        """Return what a person should know when the run is over; None if there is nothing."""
        if not self._files:
            return None
        names = list(self._files)
        more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
        return Notice(
            "EXECUTED_FILES",
            f"This run changed files that other tools execute: {', '.join(names[:NAMED])}{more}. Review them.",
        )

    def _add(self, paths: list[str], context: ToolContext) -> None:
        for path in paths:
            if len(self._files) < MOST_FILES:
                self._files[shown(Path(path), context.cwd)] = None


def _real(path: str, context: ToolContext) -> Path:
    return context.workspace.real(locate(path, context.cwd))


def _is_executed(path: Path, roots: list[Path]) -> bool:
    return any(is_executed(path.relative_to(root)) for root in roots if path.is_relative_to(root))


def _named(call: ToolCall, access: Access) -> dict[str, str]:
    """Return the arguments of a call that name a path."""
    try:
        arguments = msgspec.json.decode(call.arguments, type=dict[str, msgspec.Raw])
        named = {name: arguments[name] for name in (access.argument, access.directory) if name in arguments}
        return {name: msgspec.json.decode(text, type=str) for name, text in named.items()}
    except (msgspec.MsgspecError, RecursionError):
        return {}


def _roots(context: ToolContext, directory: str) -> list[Path]:
    more: tuple[Path, ...] = () if context.sandbox is None else context.sandbox.writable
    named = [locate(directory, context.cwd)] if directory else []
    return [*context.workspace.writable, *more, *named]
