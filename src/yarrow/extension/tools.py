"""Makes a tool of an extension into one that the registry can hold: it runs in the extension's thread."""

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
"""How long a tool may take to say what it would do."""


class ExtensionTool(Protocol):
    """A `yarrow.tool.base.Tool`, except that `preview` may be missing.

    With `access`, a `yarrow.tool.access.Access`, it declares what it touches.
    """

    @property
    def name(self) -> str:
        """The name the model calls it by: letters, digits, _ and -, at most 64, the first no digit."""
        ...

    @property
    def read_only(self) -> bool:
        """Whether it changes nothing, so that it runs in a dry run and beside others."""
        ...

    @property
    def arguments(self) -> type[Struct]:
        """The argument model: only data, and declared with `forbid_unknown_fields=True`."""
        ...

    def run(self, arguments: Any, context: ToolContext) -> AsyncIterator[Progress | Result]:
        """Do it, as an async generator: any number of `Progress`, then exactly one result, last."""
        ...


class ToolOffer(Struct, frozen=True):
    """A tool as it was registered; what was read of it then counts, whatever its object says later."""

    name: str
    read_only: bool
    arguments: type[Struct]
    description: str
    tool: ExtensionTool
    preview: Callable[[Any, ToolContext], Awaitable[Result]] | None
    access: Access


class HostedTool:
    """A tool of an extension. What fails in it is told to the model; whatever it yields is checked."""

    def __init__(self, host: ExtensionHost, offer: ToolOffer) -> None:
        self.name = offer.name
        self.read_only = offer.read_only
        self.arguments = offer.arguments
        self.access = offer.access
        self.description = offer.description
        """The prose the model sees."""
        self._host = host
        self._offer = offer

    async def run(self, arguments: Any, context: ToolContext) -> AsyncGenerator[Progress | Result]:
        """Run it in the extension's thread; closing this closes it there, see `Host.stream`."""

        async def checked() -> AsyncGenerator[Progress | Result]:
            # What is registered is an async generator function, however it is annotated.
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
        """Let the tool say what it would do; for one that cannot, say its name and the arguments."""
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
