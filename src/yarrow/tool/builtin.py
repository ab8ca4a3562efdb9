"""Table of the built-in tools; the module of each is imported with its first call, since most runs call few."""

from collections.abc import AsyncIterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from yarrow.message import ToolSpec
from yarrow.tool.base import Access, Progress, Result, Tool, ToolContext

NAMES = ("read", "grep", "find", "ls", "write", "edit", "bash")
"""Names in the order that a model sees; each is that of its module, and capitalized that of its class."""
DESCRIPTIONS = Path(__file__).with_name("builtin.json")
"""Descriptions by name, which `make generate` reads from the modules."""


class ToolDescription(Struct, frozen=True):
    """Everything about a tool that is needed before its first call."""

    read_only: bool
    access: Access
    spec: ToolSpec


class BuiltinTool:
    """A built-in tool by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def read_only(self) -> bool:
        """True if the tool changes nothing."""
        return self._description.read_only

    @property
    def access(self) -> Access:
        """Target of its calls."""
        return self._description.access

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model sees it."""
        return self._description.spec

    @property
    def arguments(self) -> type[Struct]:
        """Argument model, which imports the tool."""
        return self.load().arguments

    def run(self, arguments: Any, context: ToolContext) -> AsyncIterator[Progress | Result]:
        """Run the tool."""
        return self.load().run(arguments, context)

    async def preview(self, arguments: Any, context: ToolContext) -> Result:
        """Describe what `run` would do."""
        return await self.load().preview(arguments, context)

    def load(self) -> Tool:
        """Import the tool."""
        return _load(self.name)

    @property
    def _description(self) -> ToolDescription:
        return _read_descriptions()[self.name]


@cache
def _load(name: str) -> Tool:
    return getattr(import_module(f"yarrow.tool.{name}"), name.capitalize())()


@cache
def _read_descriptions() -> dict[str, ToolDescription]:
    return msgspec.json.decode(DESCRIPTIONS.read_bytes(), type=dict[str, ToolDescription])


BUILTIN_TOOLS = tuple(map(BuiltinTool, NAMES))
