"""Adapter for tools of extensions: they run in the extension's thread."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Protocol, cast

import msgspec
from msgspec import Struct

from yarrow.extension.extension_errors import ExtensionError
from yarrow.extension.host import ExtensionHost
from yarrow.extension.plain_values import copy_plain
from yarrow.tool.access import Access
from yarrow.tool.base import Done, Progress, Result, ToolContext, ToolFailed

MAX_PREVIEW_SECONDS = 30.0
"""Timeout in seconds for a tool's preview."""


class ExtensionTool(Protocol):
    """A `yarrow.tool.base.Tool` whose `preview` is optional.

    The optional `access`, a `yarrow.tool.access.Access`, declares what the tool accesses.
    """

    @property
    def name(self) -> str:
        """Name for the model: letters, digits, _ and -, at most 64, not starting with a digit."""
        ...

    @property
    def read_only(self) -> bool:
        """True if the tool changes nothing, so that it may run in a dry run and in parallel."""
        ...

    @property
    def arguments(self) -> type[Struct]:
        """The argument model: data only, declared with `forbid_unknown_fields=True`."""
        ...

    def run(self, arguments: Any, context: ToolContext) -> AsyncIterator[Progress | Result]:
        """Run the tool as an async generator: any number of `Progress`, then exactly one result."""
        ...


class ToolOffer(Struct, frozen=True):
    """A registered tool with the attributes read at registration; later changes of the object have no effect."""

    name: str
    read_only: bool
    arguments: type[Struct]
    description: str
    tool: ExtensionTool
    preview: Callable[[Any, ToolContext], Awaitable[Result]] | None
    access: Access


class HostedTool:
    """A tool of an extension. Its failures are reported to the model, and everything it yields is validated."""

    def __init__(self, host: ExtensionHost, offer: ToolOffer) -> None:
        self.name = offer.name
        self.read_only = offer.read_only
        self.arguments = offer.arguments
        self.access = offer.access
        self.description = offer.description
        """The description that the model sees."""
        self._host = host
        self._offer = offer

    async def run(self, arguments: Any, context: ToolContext) -> AsyncGenerator[Progress | Result]:
        """Run the tool in the extension's thread; closing this closes it there, see `ExtensionHost.stream`."""

        async def checked() -> AsyncGenerator[Progress | Result]:
            # A registered `run` is an async generator function, however it is annotated.
            output = cast("AsyncGenerator[object]", self._offer.tool.run(arguments, context))
            async with aclosing(output) as source:
                async for item in source:
                    yield copy_plain(item, Progress, Done, ToolFailed)

        try:
            async with aclosing(self._host.stream(checked)) as items:
                async for item in items:
                    yield item
        except ExtensionError as error:
            yield self._make_failure(error)

    async def preview(self, arguments: Any, context: ToolContext) -> Result:
        """Return the tool's preview of a call, or its name and arguments if it has none."""
        preview = self._offer.preview
        if preview is None:
            return Done(f"Would run {self.name} with {msgspec.json.encode(arguments).decode()}.")

        async def work() -> Result:
            return copy_plain(await preview(arguments, context), Done, ToolFailed)

        try:
            return await self._host.call(work, MAX_PREVIEW_SECONDS)
        except ExtensionError as error:
            return self._make_failure(error)

    def _make_failure(self, error: ExtensionError) -> ToolFailed:
        return ToolFailed(f"The tool {self.name} failed: {error.message}. Try another way.")
