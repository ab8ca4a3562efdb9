"""Detects files changed by a run that other tools execute or that git restores later, for notices at its end."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from yarrow.agent.authorization import asks_outside
from yarrow.agent.cancellation_shield import run_shielded
from yarrow.agent.run_context import RunResources
from yarrow.event.events import Notice
from yarrow.message import ToolCall
from yarrow.policy.auto_executed_files import (
    FileState,
    NestedFiles,
    changed_paths,
    is_executed,
    is_executed_config,
    snapshot,
)
from yarrow.policy.permission.path_rules import ToolKind
from yarrow.tool.base import Access, CommandEffects, Done, Progress, Result, ToolContext
from yarrow.tool.paths import format_path, locate, quote_path

if TYPE_CHECKING:
    from yarrow.policy.git_named_programs import NamedPrograms
    from yarrow.policy.git_refs_snapshot import WorkspaceRepositories

NAMED = 10
"""Maximum files named in a notice; the rest are counted."""
COMMAND_CHARACTERS = 120
"""Maximum characters shown of a command."""
MOST_FILES = 1_000
"""Maximum files remembered per run; later ones are dropped."""
MAX_DIRECTORIES = 2_000
"""Maximum directories, the nearest first, in which files are compared around a command without a sandbox."""


RETURNING = "This run committed or staged directories that git treats as repositories and whose settings it runs"
QUARANTINED = "These files were changed outside the sandbox while a command ran, and quarantined"
RESTORE = "If you made a change, run `yarrow sandbox quarantine restore N`."
UNCHECKED = "This run changed repositories that could not be checked for settings git executes"


class _Left(Struct, frozen=True):
    """Changes that a run made in repositories, formatted for display."""

    commands: Sequence[str] = ()
    places: Sequence[str] = ()
    unchecked: Sequence[str] = ()


class _Look(Struct, frozen=True):
    """Executed files at one moment."""

    states: Mapping[str, FileState]
    """Files at the top of the workspace, unless the sandbox compares them, and files named by the git configuration."""
    entries: Sequence[str] = ()
    """Paths in all directories whose names match `EXECUTED_NAMES`; empty if the sandbox compares them."""
    nested: NestedFiles | None = None

    @classmethod
    def take(cls, roots: list[Path], programs: "NamedPrograms", *, nested: bool) -> "_Look":
        """Record the files."""
        states = snapshot(roots, programs.files, programs.directories)
        if not nested:
            return cls(states)
        # Imported here because a sandbox does the same.
        from yarrow.policy.sandbox.directory_listing import executed_entries, scan_executed

        entries = tuple(executed_entries(roots, scan_executed(roots, MAX_DIRECTORIES)))
        return cls(states, entries, NestedFiles.snapshot(entries))

    def changed_paths(self, after: "_Look") -> list[str]:
        """Return the paths of files that were created or changed since."""
        nested = [] if self.nested is None else self.nested.changed_paths(after.entries)
        return [*changed_paths(self.states, after.states), *nested]


class ExecutedFiles:
    """Files changed in one run that other tools execute."""

    def __init__(self) -> None:
        self._files: dict[str, None] = {}
        self._replaced: list[str] = []
        """Quarantined files that were changed outside the sandbox while a command ran."""
        self._repositories: WorkspaceRepositories | None = None
        """The repositories before the first call."""
        self._steps: dict[Path, tuple[str, ...]] = {}
        """Commands of git operations already in progress before the first call."""
        self._programs: NamedPrograms | None = None
        """Programs named by the git configuration before the first call."""

    async def left_by(
        self, pieces: AsyncGenerator[Progress | Result], call: ToolCall, resources: RunResources
    ) -> AsyncGenerator[Progress | Result]:
        """Pass on what a tool yields, and record the executed files that it wrote."""
        access, context = resources.registry.get_access(call.name), resources.require_context()
        named = _named(call, access)
        roots = _roots(context, named.get(access.directory, ""))
        if self._repositories is None and context.sandbox is not None:
            self._repositories, self._steps = await asyncio.to_thread(_look_at_git, roots)
        if (programs := self._programs) is None:
            programs = self._programs = await asyncio.to_thread(_named_programs, self._repositories, roots)
        is_watched = context.sandbox is not None and access.sandboxed and not asks_outside(call)
        nested = access.kind is ToolKind.SHELL and not is_watched
        # The sandbox compares all directories, the roots included.
        look = partial(_Look.take, [] if is_watched else roots, programs, nested=nested)
        before = await asyncio.to_thread(look)
        result: Progress | Result | None = None
        try:
            async with aclosing(pieces):
                async for result in pieces:
                    yield result
        finally:
            after = await run_shielded(asyncio.to_thread(look))
            self._add(before.changed_paths(after), context)
            # The file may be deeper in the tree than the snapshot covers.
            if access.kind is ToolKind.FILE and isinstance(result, Done) and (path := named.get(access.argument)):
                self._add([str(real) for real in [_real(path, context)] if _is_executed(real, roots)], context)

    def reporting(self, context: ToolContext) -> ToolContext:
        """Return the context in which sandboxed commands report their effects."""
        return replace(context, report_effects=partial(self._add_effects, context=context))

    async def notices(self, context: ToolContext) -> list[Notice]:
        """Return the notices for the end of the run."""
        left = _Left() if self._repositories is None else await asyncio.to_thread(self._left, context)
        # Commands come first, so that a long list of file names cannot hide them.
        executed = [*left.commands, *self._files]
        return [
            *_noted("EXECUTED_FILES", "This run changed files that other tools execute", executed),
            *_noted("RETURNING_REPOSITORIES", RETURNING, left.places),
            *_noted("UNCHECKED_REPOSITORIES", UNCHECKED, left.unchecked),
            *_noted("QUARANTINED_FILES", QUARANTINED, self._replaced, advice=RESTORE),
        ]

    def _left(self, context: ToolContext) -> "_Left":
        """Return the changes that the run made in repositories."""
        from yarrow.policy import git_refs_snapshot
        from yarrow.policy.git_embedded_repositories import find_embedded_repositories

        after = git_refs_snapshot.scan_repositories(_roots(context, ""))
        commands = git_refs_snapshot.new_exec_commands(self._steps, git_refs_snapshot.read_exec_commands(after.states))
        found = find_embedded_repositories(self._repositories or git_refs_snapshot.WorkspaceRepositories(), after)
        return _Left(
            [
                f"{format_path(path, context.cwd)} ({quote_path(command[:COMMAND_CHARACTERS])})"
                for path, command in commands
            ],
            [format_path(path, context.cwd) for path in found.directories],
            [quote_path(text) for text in found.unchecked],
        )

    def _add_effects(self, effects: CommandEffects, context: ToolContext) -> None:
        self._add(effects.executed, context)
        for entry in effects.replaced[: MOST_FILES - len(self._replaced)]:
            where = str(entry.number) if entry.number else f"now {quote_path(entry.item.name)}"
            self._replaced.append(f"{format_path(entry.path, context.cwd)} ({where})")

    def _add(self, paths: Sequence[str], context: ToolContext) -> None:
        for path in paths:
            if len(self._files) < MOST_FILES:
                self._files[format_path(Path(path), context.cwd)] = None


def _noted(code: str, text: str, names: Sequence[str], *, advice: str = "Review them.") -> list[Notice]:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return [Notice(code, f"{text}: {', '.join(names[:NAMED])}{more}. {advice}")] if names else []


def _look_at_git(roots: list[Path]) -> "tuple[WorkspaceRepositories, dict[Path, tuple[str, ...]]]":
    from yarrow.policy import git_refs_snapshot  # many runs call no tool that writes

    found = git_refs_snapshot.scan_repositories(roots)
    return found, git_refs_snapshot.read_exec_commands(found.states)


def _named_programs(repositories: "WorkspaceRepositories | None", roots: list[Path]) -> "NamedPrograms":
    from yarrow.policy.git_named_programs import find_named_programs, git_directories_at  # as above

    directories = git_directories_at(roots) if repositories is None else repositories.states
    return find_named_programs(directories, roots, Path.home())


def _real(path: str, context: ToolContext) -> Path:
    return context.workspace.realpath(locate(path, context.cwd))


def _is_executed(path: Path, roots: list[Path]) -> bool:
    is_named = any(is_executed(path.relative_to(root)) for root in roots if path.is_relative_to(root))
    return is_named or is_executed_config(str(path))


def _named(call: ToolCall, access: Access) -> dict[str, str]:
    """Return the call arguments that contain a path."""
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
