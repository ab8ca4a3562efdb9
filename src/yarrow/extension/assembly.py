"""Assembly of extension contributions: in order, each extension in its own thread, each name once."""

from collections.abc import Collection
from inspect import isawaitable
from pathlib import Path
from typing import assert_never

from msgspec.structs import replace

from yarrow.agent.hooks import ContributedCommand, Contributions, Hook, HookName, HookRegistry
from yarrow.config.settings import BUILT_IN_PROVIDERS
from yarrow.extension.api import CommandOffer, HookOffer, ProviderOffer, Registration, Yarrow, host_command, host_hook
from yarrow.extension.host import ExtensionError, ExtensionHost
from yarrow.extension.providers import host_provider_factory
from yarrow.extension.sources import ExtensionSource
from yarrow.extension.tools import HostedTool, ToolOffer
from yarrow.provider.factory import ProviderBuilder

MAX_LOAD_SECONDS = 5.0
"""Timeout in seconds for importing an extension and registering its contributions."""


class ContributionAssembly:
    """The contributions registered so far."""

    def __init__(self, tools: Collection[str], warnings: Collection[str]) -> None:
        self.hosts: list[ExtensionHost] = []
        """Hosts of the loaded extensions."""
        self._tool_names = set(tools)
        self._warnings = list(warnings)
        self._hooks: dict[HookName, list[Hook]] = {}
        self._tools: list[HostedTool] = []
        self._commands: dict[str, ContributedCommand] = {}
        self._providers: dict[str, ProviderBuilder] = {}

    def load(self, source: ExtensionSource) -> None:
        """Load one extension and add its contributions; if it fails, add none and record a warning."""
        host = ExtensionHost(source.label)
        yarrow = Yarrow(source.label)

        async def register() -> tuple[Registration, ...]:
            function = source.load_function()
            if not callable(function):
                raise TypeError(f"expected a function that accepts a Yarrow, not {type(function).__name__}")
            result: object = function(yarrow)
            if isawaitable(result):
                await result
            return yarrow.finish()

        try:
            registered = host.run_blocking(register, MAX_LOAD_SECONDS)
        except ExtensionError as error:
            host.stop()
            self._warnings.append(f"the extension {source.label} was skipped: {error.message}")
            return
        self.hosts.append(host)
        for registration in registered:
            self._add_registration(host, registration)

    def make_contributions(self, files: tuple[Path, ...] = ()) -> Contributions:
        """Return all contributions, in order; `files` are the files that the extensions were loaded from."""
        return Contributions(
            HookRegistry(self._hooks),
            tuple(self._tools),
            tuple(self._commands.values()),
            self._providers,
            files,
            tuple(self._warnings),
        )

    def _add_registration(self, host: ExtensionHost, registration: Registration) -> None:
        match registration:
            case HookOffer(name, label, function, takes_about, required):
                hook = host_hook(host, label, function, takes_context=takes_about)
                hook = replace(hook, required=required)
                self._hooks.setdefault(name, []).append(hook)
            case ToolOffer():
                if self._is_name_free(host, registration.name, kind="tool", taken=self._tool_names):
                    self._tool_names.add(registration.name)
                    self._tools.append(HostedTool(host, registration))
            case CommandOffer(name, description, function):
                if self._is_name_free(host, name, kind="command", taken=self._commands):
                    self._commands[name] = host_command(host, name, function, description=description)
            case ProviderOffer(name, factory):
                if self._is_name_free(host, name, kind="provider", taken={*BUILT_IN_PROVIDERS, *self._providers}):
                    self._providers[name] = host_provider_factory(host, factory)
            case _:
                assert_never(registration)

    def _is_name_free(self, host: ExtensionHost, name: str, *, kind: str, taken: Collection[str]) -> bool:
        if name in taken:
            self._warnings.append(f"the {kind} {name} of the extension {host.label} was skipped: the name is in use")
        return name not in taken
