"""Traces of a run in what other tools execute or git brings back later, named in notices at its end."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import msgspec

from yarrow.agent.ports import Equipment
from yarrow.event.events import Notice
from yarrow.message import ToolCall
from yarrow.policy import gitsteps
from yarrow.policy.executed import changed, is_executed, look
from yarrow.policy.gitstate import State
from yarrow.policy.gitstate import look as look_at_git
from yarrow.policy.permission.request import Kind
from yarrow.tool.access import Access
from yarrow.tool.base import Done, Progress, Result, ToolContext
from yarrow.tool.names import told
from yarrow.tool.paths import locate, shown

NAMED = 10
"""Files named in the notice; the others are counted."""
COMMAND_CHARACTERS = 120
"""Characters of a command that are shown."""
MOST_FILES = 1_000
"""Files remembered of one run; later ones are not counted."""


class Traces:
    """Files of one run that other tools execute."""

    def __init__(self) -> None:
        self._files: dict[str, None] = {}
        self._repositories: dict[Path, State] | None = None
        """State of the repositories before the first call."""
        self._steps: dict[Path, tuple[str, ...]] = {}
        """Commands of git operations that had stopped then."""

    async def left_by(
        self, pieces: AsyncGenerator[Progress | Result], call: ToolCall, equipment: Equipment
    ) -> AsyncGenerator[Progress | Result]:
        """Pass on what a tool yields, and note which of those files it wrote."""
        access, context = equipment.registry.access(call.name), equipment.context
        named = _named(call, access)
        roots = _roots(context, named.get(access.directory, ""))
        if self._repositories is None and context.sandbox is not None:
            self._repositories, self._steps = await asyncio.to_thread(_look_at_git, roots)
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

    async def notices(self, context: ToolContext) -> list[Notice]:
        """Return what the user should know when the run is over."""
        # Commands come first, lest a run hide them behind others that it names.
        executed = [*(await self._commands(context)), *self._files]
        files = self._noted("EXECUTED_FILES", "This run changed files that other tools execute", executed)
        if self._repositories is None:
            return files
        from yarrow.policy.gitreturns import returns

        found = await asyncio.to_thread(returns, self._repositories, _roots(context, ""))
        places = [shown(path, context.cwd) for path in found.places]
        returning = (
            "This run committed or staged directories that git will treat as repositories, and run their settings"
        )
        rebases = [shown(path, context.cwd) for path in found.rebases]
        unread = "This run changed repositories that could not be checked for settings that git runs"
        return [
            *files,
            *self._noted("RETURNING_REPOSITORIES", returning, places),
            *self._noted("PENDING_COMMANDS", "This run left a rebase that runs commands when it continues", rebases),
            *self._noted("UNCHECKED_REPOSITORIES", unread, [told(text) for text in found.unread]),
        ]

    async def _commands(self, context: ToolContext) -> list[str]:
        """Return the commands that this run put into lists of git, each with its list."""
        if self._repositories is None:
            return []
        after = await asyncio.to_thread(gitsteps.look, _roots(context, ""))
        found = gitsteps.added(self._steps, after)
        return [f"{shown(path, context.cwd)} ({told(command[:COMMAND_CHARACTERS])})" for path, command in found]

    def _noted(self, code: str, text: str, names: list[str]) -> list[Notice]:
        more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
        return [Notice(code, f"{text}: {', '.join(names[:NAMED])}{more}. Review them.")] if names else []

    def _add(self, paths: list[str], context: ToolContext) -> None:
        for path in paths:
            if len(self._files) < MOST_FILES:
                self._files[shown(Path(path), context.cwd)] = None


def _look_at_git(roots: list[Path]) -> tuple[dict[Path, State], dict[Path, tuple[str, ...]]]:
    return look_at_git(roots), gitsteps.look(roots)


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
