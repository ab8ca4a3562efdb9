"""What extensions add to a service: hooks, tools, commands and providers."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from msgspec import Struct

from yarrow.agent.hooks import HookRegistry
from yarrow.provider.factory import ProviderBuilder
from yarrow.tool.base import Tool


class ContributedCommand(Struct, frozen=True):
    """A command that a prompt can begin with."""

    name: str
    description: str
    expand: Callable[[str, str], Awaitable[str]]
    """Takes what follows the command's name and the working directory; returns the prompt to send."""


class Contributions(Struct, frozen=True):
    """Everything that was registered, in order."""

    hooks: HookRegistry
    tools: tuple[Tool, ...] = ()
    commands: tuple[ContributedCommand, ...] = ()
    providers: Mapping[str, ProviderBuilder] = {}
    """What builds a provider, by the id it is configured and named with."""
    files: tuple[Path, ...] = ()
    """Files and directories that extensions were loaded from."""
    warnings: tuple[str, ...] = ()
    """What a person should be told: an extension that could not be loaded, a name that was taken."""


def no_contributions() -> Contributions:
    """Return what a service without extensions has."""
    return Contributions(HookRegistry())
