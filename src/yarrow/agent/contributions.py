"""Contributions of extensions: hooks, tools, commands and providers."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from msgspec import Struct

from yarrow.agent.hooks import HookRegistry
from yarrow.provider.factory import ProviderBuilder
from yarrow.tool.base import Tool


class ContributedCommand(Struct, frozen=True):
    """A slash command that an extension provides."""

    name: str
    description: str
    expand: Callable[[str, str], Awaitable[str]]
    """Returns the prompt to send, given the text after the command name and the working directory."""


class Contributions(Struct, frozen=True):
    """Everything that extensions registered, in order."""

    hooks: HookRegistry
    tools: tuple[Tool, ...] = ()
    commands: tuple[ContributedCommand, ...] = ()
    providers: Mapping[str, ProviderBuilder] = {}
    """Provider builders by configured provider id."""
    files: tuple[Path, ...] = ()
    """Files and directories from which extensions were loaded."""
    warnings: tuple[str, ...] = ()
    """Warnings for the user, such as an extension that failed to load or a name already in use."""


def no_contributions() -> Contributions:
    """Return the contributions of a service without extensions."""
    return Contributions(HookRegistry())
