"""Puts together what extensions register: in order, each in its own thread, each name once."""

from collections.abc import Collection
from inspect import isawaitable
from pathlib import Path
from typing import assert_never

from msgspec.structs import replace

from yarrow.agent.contributions import ContributedCommand, Contributions
from yarrow.agent.hooks import Hook, HookName, HookRegistry
from yarrow.config.settings import BUILT_IN
from yarrow.extension.api import CommandOffer, HookOffer, ProviderOffer, Registration, Yarrow
from yarrow.extension.commands import hosted_command
from yarrow.extension.failures import ExtensionError
from yarrow.extension.hooks import hosted_hook
from yarrow.extension.host import Host
from yarrow.extension.providers import hosted_builder
from yarrow.extension.sources import Source
from yarrow.extension.tools import HostedTool, Offer
from yarrow.provider.factory import Builder

LOAD_SECONDS = 5.0
"""How long one extension may take to be imported and to register what it adds."""


class Assembly:
    """What was registered so far."""

    def __init__(self, tools: Collection[str], warnings: Collection[str]) -> None:
        self.hosts: list[Host] = []
        """Of the extensions that were loaded."""
        self._taken = set(tools)
        self._warnings = list(warnings)
        self._hooks: dict[HookName, list[Hook]] = {}
        self._tools: list[HostedTool] = []
        self._commands: dict[str, ContributedCommand] = {}
        self._providers: dict[str, Builder] = {}

    def load(self, source: Source) -> None:
        """Load one extension and take what it registers; when it fails, take nothing of it and say so."""
        host = Host(source.label)
        yarrow = Yarrow(source.label)

        async def register() -> tuple[Registration, ...]:
            function = source.find()
            if not callable(function):
                raise TypeError(f"a function that takes a Yarrow is needed, not {type(function).__name__}")
            result: object = function(yarrow)
            if isawaitable(result):
                await result
            return yarrow.finish()

        try:
            registered = host.wait(register, LOAD_SECONDS)
        except ExtensionError as error:
            host.end()
            self._warnings.append(f"the extension {source.label} was skipped: {error.message}")
            return
        self.hosts.append(host)
        for registration in registered:
            self._take(host, registration)

    def added(self, files: tuple[Path, ...] = ()) -> Contributions:
        """Return everything, in order; `files` are those that the extensions came from."""
        return Contributions(
            HookRegistry(self._hooks),
            tuple(self._tools),
            tuple(self._commands.values()),
            self._providers,
            files,
            tuple(self._warnings),
        )

    def _take(self, host: Host, registration: Registration) -> None:
        match registration:
            case HookOffer(name, label, function, takes_about, required):
                hook = hosted_hook(host, label, function, takes_about=takes_about)
                hook = replace(hook, required=required)
                self._hooks.setdefault(name, []).append(hook)
            case Offer():
                if self._free(host, registration.name, kind="tool", taken=self._taken):
                    self._taken.add(registration.name)
                    self._tools.append(HostedTool(host, registration))
            case CommandOffer(name, description, function):
                if self._free(host, name, kind="command", taken=self._commands):
                    self._commands[name] = hosted_command(host, name, function, description=description)
            case ProviderOffer(name, factory):
                if self._free(host, name, kind="provider", taken={*BUILT_IN, *self._providers}):
                    self._providers[name] = hosted_builder(host, factory)
            case _:
                assert_never(registration)

    def _free(self, host: Host, name: str, *, kind: str, taken: Collection[str]) -> bool:
        if name in taken:
            self._warnings.append(f"the {kind} {name} of the extension {host.label} was refused: the name is taken")
        return name not in taken
