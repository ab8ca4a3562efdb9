"""Tools of extensions, with the schema and the values of their arguments."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from enum import Enum
from typing import Any, Protocol, TypeVar, cast

import msgspec
from msgspec import Struct, inspect

from yarrow.extension.extension_host import ExtensionError, ExtensionHost
from yarrow.tool.arguments import make_schema
from yarrow.tool.base import Access, Done, Progress, Result, ToolContext, ToolFailed

T = TypeVar("T", bound=Struct)


def copy_plain(value: object, *kinds: type[T]) -> T:
    """Return `value` as a new value of its type in `kinds`; every field is type-checked. Raises TypeError."""
    kind = next((kind for kind in kinds if isinstance(value, kind)), None)
    if kind is None:
        names = ", ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{type(value).__name__} is not one of {names}")
    try:
        copy = msgspec.convert(msgspec.to_builtins(value, builtin_types=(bytes,)), kind)
        msgspec.json.encode(copy)
    except (msgspec.MsgspecError, UnicodeError, TypeError) as error:
        raise TypeError(f"{kind.__name__}: {error}") from None
    return copy


SAFE_FACTORIES = (list, dict, set, tuple, frozenset)
"""Allowed default factories of a field."""


def check_arguments(tool: str, model: object) -> None:
    """Raise TypeError unless `model` is a `Struct` that forbids unknown fields and decodes without running code.

    Calls are decoded outside the tool's own thread, so no code of the model may run then.
    """
    if not (isinstance(model, type) and issubclass(model, Struct)):
        raise TypeError(f"the tool {tool} needs arguments: a subclass of msgspec.Struct")
    if not model.__struct_config__.forbid_unknown_fields:
        raise TypeError(f"{model.__name__} of the tool {tool} must be declared with forbid_unknown_fields=True")
    try:
        schema = make_schema(model)
    except RecursionError:
        raise TypeError(f"{model.__name__} of the tool {tool} refers to itself; a schema cannot express that") from None
    if schema.get("type") != "object":
        raise TypeError(f"{model.__name__} of the tool {tool} must be a JSON object, so without array_like or a tag")
    odd = _find_code(inspect.type_info(model))
    if odd:
        raise TypeError(f"{model.__name__} of the tool {tool} has {odd}: check values in run instead")


def _find_code(node: Any) -> str:
    """Return the part of a type that would run code on decoding; empty if there is none."""
    cls: Any = getattr(node, "cls", None)
    if isinstance(node, inspect.CustomType):
        return f"a field of the type {cls.__name__}"
    if isinstance(cls, type):
        if hasattr(cls, "__post_init__"):
            return f"__post_init__ in {cls.__name__}"
        if issubclass(cls, Enum) and "_missing_" in vars(cls):
            return f"_missing_ in {cls.__name__}"
    for field in getattr(node, "fields", ()):
        factory = field.default_factory
        if factory is not msgspec.NODEFAULT and factory not in SAFE_FACTORIES:
            return f"a default_factory for {field.name}"
    return next(filter(None, (_find_code(part) for part in _list_part_types(node))), "")


def _list_part_types(node: Any) -> list[inspect.Type]:
    """Return the types that a type consists of."""
    values: list[Any] = [getattr(node, name) for name in getattr(node, "__struct_fields__", ())]
    several = [each for value in values if isinstance(value, tuple) for each in cast("tuple[Any, ...]", value)]
    found: list[inspect.Type] = []
    for value in (*values, *several):
        if isinstance(value, inspect.Type):
            found.append(value)
        elif isinstance(value, inspect.Field):
            found.append(value.type)
    return found


MAX_PREVIEW_SECONDS = 30.0
"""Timeout in seconds for a tool's preview."""


class ExtensionTool(Protocol):
    """A `yarrow.tool.base.Tool` whose `preview` is optional.

    The optional `access`, a `yarrow.tool.base.Access`, declares what the tool accesses.
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
