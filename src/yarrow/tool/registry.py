"""Registry of tools, and the single path of every call: lookup, validation, dry run, permission, output limits."""

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from pathlib import Path

import msgspec
from msgspec import Struct

from yarrow.message import ToolCall, ToolSpec
from yarrow.policy.permission.path_rules import ToolKind
from yarrow.tool.arguments import InvalidArguments, decode_arguments, make_schema
from yarrow.tool.base import OTHER_ACCESS, Access, Done, Progress, Result, Tool, ToolContext, ToolFailed, get_access
from yarrow.tool.builtin import BuiltinTool
from yarrow.tool.result_limits import MAX_PROGRESS_BYTES, limit_diff, limit_text, replace_unstorable, take_last_bytes

Authorize = Callable[[Tool, Struct, ToolContext], Awaitable[ToolContext | ToolFailed]]
"""Returns the context for a call, which may be wider than the one passed, or why the call must not run."""

MAX_SHOWN_ARGUMENTS = 200
"""Maximum characters of invalid arguments that an error repeats."""
DRY_RUN_NOTE = "Dry run: nothing was changed."


class ToolRegistry:
    """All available tools by their unique names."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        """Register the tools in order. Raises ValueError if two have the same name."""
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise ValueError(f"two tools are named {tool.name!r}; names must be unique")
            self._tools[tool.name] = tool
        self._specs: dict[str, ToolSpec] = {}

    def names(self) -> tuple[str, ...]:
        """Return the names in order."""
        return tuple(self._tools)

    def specs(self, names: Iterable[str] | None = None) -> tuple[ToolSpec, ...]:
        """Return the tools as a model sees them, either those named or all, always in the order of the registry."""
        wanted = set(self._tools if names is None else names)
        return tuple(self._get_spec(tool) for tool in self._tools.values() if tool.name in wanted)

    def is_read_only(self, name: str) -> bool:
        """Return whether calls of that name change nothing; True for an unknown name, which only yields an error."""
        tool = self._tools.get(name)
        return tool is None or tool.read_only

    def get_access(self, name: str) -> Access:
        """Return the access of a tool; `OTHER_ACCESS` if it is unknown."""
        tool = self._tools.get(name)
        return OTHER_ACCESS if tool is None else get_access(tool)

    def find_shell_tool(self) -> str:
        """Return the name of the first tool that runs shell commands; empty if there is none."""
        return next((name for name in self._tools if self.get_access(name).kind is ToolKind.SHELL), "")

    async def execute(
        self,
        call: ToolCall,
        context: ToolContext,
        *,
        authorize: Authorize,
        dry_run: bool,
        offered: frozenset[str] | None = None,
    ) -> AsyncGenerator[Progress | Result]:
        """Run one call: yield any number of `Progress`, then exactly one result, in every case but cancellation.

        `authorize` is called right before the tool runs or previews; its errors propagate. `offered` are the names that
        the model knows; any other name is an unknown tool. Close the generator (`contextlib.aclosing`) to stop a
        running tool immediately.
        """
        prepared = self._prepare(call, offered)
        if isinstance(prepared, ToolFailed):
            yield limit_result(prepared, context)
            return
        tool, arguments = prepared
        context = msgspec.structs.replace(context, dry_run=dry_run)
        permitted = await authorize(tool, arguments, context)
        if isinstance(permitted, ToolFailed):
            yield limit_result(permitted, context)
            return
        async with aclosing(_run_tool(tool, arguments, permitted)) as pieces:
            async for piece in pieces:
                yield piece

    def _prepare(self, call: ToolCall, offered: frozenset[str] | None) -> tuple[Tool, Struct] | ToolFailed:
        """Return the tool and its valid arguments, or why the call cannot run."""
        tool = self._tools.get(call.name) if offered is None or call.name in offered else None
        if tool is None:
            return self._describe_unknown(call.name, offered)
        if call.invalid_arguments:
            return ToolFailed(_describe_unreadable(call))
        arguments = decode_arguments(call.arguments, tool.arguments)
        if isinstance(arguments, InvalidArguments):
            return ToolFailed(f"{call.name} was not run: invalid arguments: {arguments.text}.")
        return tool, arguments

    def _get_spec(self, tool: Tool) -> ToolSpec:
        if tool.name not in self._specs:
            self._specs[tool.name] = tool.spec if isinstance(tool, BuiltinTool) else make_spec(tool)
        return self._specs[tool.name]

    def _describe_unknown(self, name: str, offered: frozenset[str] | None) -> ToolFailed:
        import difflib

        names = [known for known in self._tools if offered is None or known in offered]
        nearest = difflib.get_close_matches(name, names, n=len(names) or 1, cutoff=0.5)
        names.sort(key=lambda known: nearest.index(known) if known in nearest else len(nearest))
        available = f"Available tools: {', '.join(names)}." if names else "No tools are available."
        return ToolFailed(f"Unknown tool {name!r}. {available}")


async def _run_tool(tool: Tool, arguments: Struct, context: ToolContext) -> AsyncGenerator[Progress | Result]:
    """Run a tool, or preview it in a dry run; yields exactly one result at the end, whatever the tool raises."""
    result: Result = ToolFailed(f"The tool {tool.name} has a bug: it ended without a result.")
    try:
        if context.dry_run and not tool.read_only:
            result = limit_result(_mark_dry_run(await tool.preview(arguments, context)), context)
        else:
            async with aclosing(_check_output(tool.run(arguments, context), tool.name, context)) as output:
                async for item in output:
                    if isinstance(item, Progress):
                        yield item
                    else:
                        result = item
    except Exception as error:  # noqa: BLE001 (tools may be third-party code, and each call needs a result)
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        result = limit_result(ToolFailed(f"The tool {tool.name} failed: {reason}. Try another way."), context)
    yield result


async def _check_output(
    output: AsyncIterator[Progress | Result], name: str, context: ToolContext
) -> AsyncGenerator[Progress | Result]:
    """Yield a tool's output within the limits, its result last, which is an error if the tool continued after it."""
    result: Result | None = None
    try:
        async for item in output:
            if result is not None:
                result = ToolFailed(f"The tool {name} has a bug: it continued after its result.")
                break
            if not isinstance(item, Progress):
                result = limit_result(item, context)
            elif item.text:
                yield Progress(take_last_bytes(replace_unstorable(item.text), MAX_PROGRESS_BYTES))
    finally:
        if isinstance(output, AsyncGenerator):
            await output.aclose()
    if result is not None:
        yield result


def make_spec(tool: Tool) -> ToolSpec:
    """Return a tool as a model sees it."""
    return ToolSpec(tool.name, _find_description(tool), make_schema(tool.arguments))


def _find_description(tool: Tool) -> str:
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


def _describe_unreadable(call: ToolCall) -> str:
    """Return the error for arguments that are not a JSON object, with their beginning."""
    text = call.invalid_arguments
    try:
        msgspec.json.decode(text)
        reason = "not an object"
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        reason = str(error)
    begins = text if len(text) <= MAX_SHOWN_ARGUMENTS else f"{text[:MAX_SHOWN_ARGUMENTS]}..."
    return (
        f"{call.name} was not run: its arguments are incomplete or not a JSON object ({reason}). "
        f"Send the whole call again. They start with: {begins}"
    )


def _mark_dry_run(result: Result) -> Result:
    return msgspec.structs.replace(result, text=f"{DRY_RUN_NOTE} {result.text}")


def limit_result(result: Result, context: ToolContext) -> Result:
    """Return the result ready to be stored and sent: within the limits, with characters that any file can hold."""
    text = limit_text(replace_unstorable(result.text), context.output_filter())
    if isinstance(result, ToolFailed):
        return ToolFailed(text)
    return Done(text, limit_diff(replace_unstorable(result.diff)), result.images)
