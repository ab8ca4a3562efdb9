"""Tool contexts of the sessions: workspace, sandbox and redaction of the output."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from yarrow.agent.run_context import ToolSetup
from yarrow.errors import ConfigError
from yarrow.event.events import Notice
from yarrow.platform.real_path import real_path
from yarrow.policy.environment import ProviderKeys
from yarrow.policy.permission.path_rules import find_denied_paths
from yarrow.policy.sandbox.session_tmp import SessionTmp
from yarrow.policy.startup_files import protectable_files
from yarrow.prompt.skills import find_skill_directories
from yarrow.service.loaded_session import LoadedSession
from yarrow.service.response_redaction import RedactorCache, with_output_filter
from yarrow.service.service_dependencies import Dependencies
from yarrow.tool.base import ToolContext


class ToolContexts:
    """The tool contexts of one service."""

    def __init__(self, dependencies: Dependencies, redactors: RedactorCache) -> None:
        self._dependencies = dependencies
        self._redactors = redactors

    async def prepare(self, entry: LoadedSession) -> Callable[[], Awaitable[ToolSetup]]:
        """Return the function that sets up the tools of a run at its first call.

        It is set up now if that could refuse the prompt or warn the user. Raises `ConfigError`.
        """
        _check_directory(entry.cwd)
        setup = partial(self._set_up, entry)
        if self._can_wait():
            return setup
        made = await setup()

        async def prepared() -> ToolSetup:
            return made

        return prepared

    async def context(self, entry: LoadedSession) -> ToolContext:
        """Return the context of the session's tools. Raises `ConfigError`."""
        # In one call: switching threads costs more than its disk accesses.
        return await asyncio.to_thread(self._make_context, entry)

    def warn_about_sandbox(self, entry: LoadedSession) -> None:
        """Add the warnings about sandboxes once, but not in a dry run: the check starts a process."""
        if not entry.has_reported_sandbox:
            entry.has_reported_sandbox = True
            boxes = self._dependencies.sandboxes
            extra = self._dependencies.settings.workspace.extra
            roots = (entry.cwd, *((entry.cwd / Path(name).expanduser()).resolve() for name in extra))
            entry.warnings += filter(
                None,
                (
                    boxes.warning(roots),
                    boxes.describe_repository(entry.cwd),
                    boxes.describe_user(entry.cwd),
                    boxes.recover(),
                ),
            )

    def root_file_notices(self, entry: LoadedSession) -> tuple[Notice, ...]:
        """Return the notice about root-only files, once per session."""
        text = "" if entry.has_reported_root_files else self._dependencies.sandboxes.root_files_notice(entry.id)
        if not text:
            return ()
        entry.has_reported_root_files = True
        return (Notice("ROOT_FILES", text),)

    def _can_wait(self) -> bool:
        """Return whether a run can set up its tools later, and so not at all if it calls none."""
        named = self._dependencies.settings.workspace
        return not (named.extra or named.read or self._dependencies.sandboxes.is_set_up_early)

    async def _set_up(self, entry: LoadedSession) -> ToolSetup:
        redactor = self._redactors.for_secrets()
        context = with_output_filter(await self.context(entry), redactor)
        return ToolSetup(context, redactor)

    def _make_context(self, entry: LoadedSession) -> ToolContext:
        from yarrow.policy.workspace import Workspace  # a run without a call needs none

        _check_directory(entry.cwd)
        dependencies, settings = self._dependencies, self._dependencies.settings.workspace
        skills = find_skill_directories(dependencies.prompt_places(entry.cwd))
        workspace = Workspace.make(entry.cwd, settings.extra, (*settings.read, *map(str, skills)))
        workspace = replace(
            workspace,
            protected=dependencies.protected_files,
            write_protected=dependencies.write_protected_dirs(entry.cwd),
            startup_files=protectable_files(dependencies.startup_files, workspace.writable),
            secrets=dependencies.secret_files(),
        )
        if entry.state.header.dry_run:
            sandbox = dependencies.sandboxes.describe(workspace)
        else:
            self.warn_about_sandbox(entry)
            denied = find_denied_paths(dependencies.permission_config.rules, entry.cwd)
            sandbox = dependencies.sandboxes.create(entry.id, workspace, denied)
        if sandbox is not None:
            workspace = replace(workspace, tmp=SessionTmp(sandbox))
        keys = ProviderKeys(
            *map(frozenset, (dependencies.key_names(), dependencies.key_values(), dependencies.withheld_names()))
        )
        return ToolContext(
            cwd=entry.cwd, workspace=workspace, bash=dependencies.settings.bash, sandbox=sandbox, keys=keys
        )


def _check_directory(cwd: Path) -> None:
    """Raise `ConfigError` unless a working directory is still where it was when the session was created."""
    if real_path(cwd) != str(cwd):
        raise ConfigError(f"{cwd} has been replaced by a symlink since this session was created; refusing to use it")
