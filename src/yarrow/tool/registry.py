"""The one place every tool call passes: look-up, validation, dry run, permission, and the limits of what comes back."""

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from pathlib import Path

import msgspec
from msgspec import Struct

from yarrow.message import ToolCall, ToolSpec
from yarrow.policy.permission.request import Kind
from yarrow.tool.access import OTHER, Access, access_of
from yarrow.tool.arguments import Invalid, decode, schema_of
from yarrow.tool.base import Done, Progress, Result, Tool, ToolContext, ToolFailed
from yarrow.tool.limits import PROGRESS_BYTES, bounded, bounded_diff, clean, last_bytes

Permit = Callable[[Tool, Struct, ToolContext], Awaitable[ToolContext | ToolFailed]]
"""Returns where a call may run, which may be wider than what it was given, or why it does not run."""

SHOWN_ARGUMENTS = 200
"""Characters of invalid arguments that an error repeats."""
NOTHING_CHANGED = "Dry run: nothing was changed."


class Registry:
    """All the tools there are, each under its own name."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        """Hold the tools in their order. Raises ValueError when two have one name."""
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise ValueError(f"two tools are called {tool.name!r}; a name must be unique")
            self._tools[tool.name] = tool
        self._specs: dict[str, ToolSpec] = {}

    def names(self) -> tuple[str, ...]:
        """Return the names, in order."""
        return tuple(self._tools)

    def specs(self, names: Iterable[str] | None = None) -> tuple[ToolSpec, ...]:
        """Return the tools as a model sees them, those named or all, in the registry's order whatever theirs is."""
        wanted = set(self._tools if names is None else names)
        return tuple(self._spec(tool) for tool in self._tools.values() if tool.name in wanted)

    def read_only(self, name: str) -> bool:
        """Whether a call of that name changes nothing; so it is for an unknown one, which only yields an error."""
        tool = self._tools.get(name)
        return tool is None or tool.read_only

    def access(self, name: str) -> Access:
        """Return what a tool touches; an unknown one touches nothing that is known."""
        tool = self._tools.get(name)
        return OTHER if tool is None else access_of(tool)

    def shell(self) -> str:
        """Return the name of the first tool that runs shell commands, empty if there is none."""
        return next((name for name in self._tools if self.access(name).kind is Kind.SHELL), "")

    async def execute(
        self,
        call: ToolCall,
        context: ToolContext,
        *,
        permit: Permit,
        dry_run: bool,
        offered: frozenset[str] | None = None,
    ) -> AsyncGenerator[Progress | Result]:
        """Run one call: any number of `Progress`, then exactly one result, last, whatever happens but cancellation.

        `permit` is asked last before the tool runs, or says what it would do; its errors are the caller's. `offered`
        are the names the model was told; a call of another is a call of an unknown tool. Close the generator
        (`contextlib.aclosing`), so that a tool that runs is ended at once.
        """
        prepared = self._prepare(call, offered)
        if isinstance(prepared, ToolFailed):
            yield within_limits(prepared, context)
            return
        tool, arguments = prepared
        context = msgspec.structs.replace(context, dry_run=dry_run)
        permitted = await permit(tool, arguments, context)
        if isinstance(permitted, ToolFailed):
            yield within_limits(permitted, context)
            return
        async with aclosing(_done(tool, arguments, permitted)) as pieces:
            async for piece in pieces:
                yield piece

    def _prepare(self, call: ToolCall, offered: frozenset[str] | None) -> tuple[Tool, Struct] | ToolFailed:
        """Return the tool and its valid arguments, or why the call is not run."""
        tool = self._tools.get(call.name) if offered is None or call.name in offered else None
        if tool is None:
            return self._unknown(call.name, offered)
        if call.invalid_arguments:
            return ToolFailed(_unreadable(call))
        arguments = decode(call.arguments, tool.arguments)
        if isinstance(arguments, Invalid):
            return ToolFailed(f"The arguments of {call.name} are wrong, so it was not run: {arguments.text}.")
        return tool, arguments

    def _spec(self, tool: Tool) -> ToolSpec:
        if tool.name not in self._specs:
            self._specs[tool.name] = ToolSpec(tool.name, _description(tool), schema_of(tool.arguments))
        return self._specs[tool.name]

    def _unknown(self, name: str, offered: frozenset[str] | None) -> ToolFailed:
        import difflib

        names = [known for known in self._tools if offered is None or known in offered]
        nearest = difflib.get_close_matches(name, names, n=len(names) or 1, cutoff=0.5)
        names.sort(key=lambda known: nearest.index(known) if known in nearest else len(nearest))
        there_are = f"The tools are: {', '.join(names)}." if names else "There are no tools."
        return ToolFailed(f"There is no tool called {name!r}. {there_are}")


async def _done(tool: Tool, arguments: Struct, context: ToolContext) -> AsyncGenerator[Progress | Result]:
    """Run a tool, or in a dry run let it say what it would do; its result comes last, whatever it raises."""
    result: Result = ToolFailed(f"The tool {tool.name} is broken: it ended without a result.")
    try:
        if context.dry_run and not tool.read_only:
            result = within_limits(_nothing_changed(await tool.preview(arguments, context)), context)
        else:
            async with aclosing(_checked(tool.run(arguments, context), tool.name, context)) as output:
                async for item in output:
                    if isinstance(item, Progress):
                        yield item
                    else:
                        result = item
    except Exception as error:  # noqa: BLE001  (a tool may be anybody's code, and the call must be answered)
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        result = within_limits(ToolFailed(f"The tool {tool.name} failed: {reason}. Try another way."), context)
    yield result


async def _checked(
    output: AsyncIterator[Progress | Result], name: str, context: ToolContext
) -> AsyncGenerator[Progress | Result]:
    """Pass on what a tool yields, within the limits; its result comes last, and is an error if the tool went on."""
    result: Result | None = None
    try:
        async for item in output:
            if result is not None:
                result = ToolFailed(f"The tool {name} is broken: it went on after its result.")
                break
            if not isinstance(item, Progress):
                result = within_limits(item, context)
            elif item.text:
                yield Progress(last_bytes(clean(item.text), PROGRESS_BYTES))
    finally:
        if isinstance(output, AsyncGenerator):
            await output.aclose()
    if result is not None:
        yield result


def _description(tool: Tool) -> str:
    """Return the tool's own `description`, else the `.md` beside its module, else the first line of its docstring."""
    if told := getattr(tool, "description", ""):
        return told
    module = type(tool).__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is not None:
        prose = Path(file).with_name(f"{tool.name}.md")
        if prose.is_file():
            return prose.read_text(encoding="utf-8").strip()
    return (type(tool).__doc__ or "").strip().partition("\n")[0]


def _unreadable(call: ToolCall) -> str:
    """Return what is wrong with arguments that are not a JSON object, with their beginning."""
    text = call.invalid_arguments
    try:
        msgspec.json.decode(text)
        reason = "not an object"
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        reason = str(error)
    begins = text if len(text) <= SHOWN_ARGUMENTS else f"{text[:SHOWN_ARGUMENTS]}..."
    return (
        f"The arguments of {call.name} were incomplete or not a JSON object ({reason}), so it was not run. "
        f"Send the whole call again. They begin: {begins}"
    )


def _nothing_changed(result: Result) -> Result:
    return msgspec.structs.replace(result, text=f"{NOTHING_CHANGED} {result.text}")


def within_limits(result: Result, context: ToolContext) -> Result:
    """Return the result as it may be stored and sent: within the limits, and of characters any file can hold."""
    text = bounded(clean(result.text), context.sieve())
    if isinstance(result, ToolFailed):
        return ToolFailed(text)
    return Done(text, bounded_diff(clean(result.diff)), result.images)
