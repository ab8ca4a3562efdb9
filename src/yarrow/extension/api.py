"""API for extensions: tools, hooks, commands and providers."""

import inspect
import json
import re
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, cast

import msgspec
from msgspec import Struct

from yarrow.agent.hooks import ContributedCommand, Hook, HookName
from yarrow.extension.extension_host import ExtensionHost
from yarrow.extension.providers import ProviderFactory
from yarrow.extension.tools import ExtensionTool, ToolOffer, check_arguments
from yarrow.prompt.markdown_resources import to_one_line
from yarrow.tool.base import Access, get_access

HookFunction = Callable[..., "dict[str, Any] | None | Awaitable[dict[str, Any] | None]"]
"""Receives the payload and, if it accepts two arguments, the context; returns the changed payload or None."""


def host_hook(host: ExtensionHost, label: str, function: HookFunction, *, takes_context: bool) -> Hook:
    """Return the hook that calls `function` in the extension's thread with copies of the values."""

    async def call(payload: bytes, about: bytes) -> bytes:
        async def work() -> bytes:
            given = (payload, about) if takes_context else (payload,)
            result: object = function(*(msgspec.json.decode(each) for each in given))
            if isawaitable(result):
                result = await result
            # Uses the standard library, which rejects anything that is not JSON: NaN, bytes, sets, objects, cycles.
            return json.dumps(result, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()

        return await host.call(work)

    return Hook(label, call)


MAX_PROMPT_CHARACTERS = 1 << 20
"""Maximum characters of the prompt that a command returns; a longer one is an error."""

CommandFunction = Callable[[str, str], "str | Awaitable[str]"]
"""Receives the text after the command's name and the working directory; returns the prompt to send."""


def host_command(host: ExtensionHost, name: str, function: CommandFunction, *, description: str) -> ContributedCommand:
    """Return the command that calls `function` in the extension's thread. The command raises `YarrowError`."""

    async def expand(arguments: str, cwd: str) -> str:
        async def work() -> str:
            result: Any = function(arguments, cwd)
            if isawaitable(result):
                result = await result
            if not isinstance(result, str):
                raise TypeError(f"it must return the prompt as a str, not {type(result).__name__}")
            if len(result) > MAX_PROMPT_CHARACTERS:
                raise ValueError(f"it returned {len(result):,} characters; the limit is {MAX_PROMPT_CHARACTERS:,}")
            return str(result.encode(), "utf-8")

        return await host.call(work)

    return ContributedCommand(name, description, expand)


NAME_PATTERN = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
PROVIDER_NAME_PATTERN = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,63}")
MAX_REGISTRATIONS = 1000
"""Maximum registrations of one extension; one more is an error."""


class HookOffer(Struct, frozen=True):
    """A registered hook."""

    name: HookName
    label: str
    function: HookFunction
    takes_context: bool
    required: bool


class CommandOffer(Struct, frozen=True):
    """A registered command."""

    name: str
    description: str
    function: CommandFunction


class ProviderOffer(Struct, frozen=True):
    """A registered provider."""

    name: str
    factory: ProviderFactory


Registration = HookOffer | ToolOffer | CommandOffer | ProviderOffer


class Yarrow:
    """Everything that an extension can add. Invalid use raises TypeError or ValueError with the correct usage.

    Use it only while the extension's function runs; later registrations are rejected. All registered functions run in
    the extension's own thread, on one asyncio event loop.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._registered: list[Registration] = []
        self._is_finished = False

    def hook(self, name: str, function: HookFunction, *, required: bool = False) -> None:
        """Call `function(payload)` or `function(payload, about)` at hook point `name`; it may be async.

        A `required` BeforeToolCall hook is a guard: if it fails, the tool call is not run. The payload is a dict
        (`yarrow.agent.hook_payloads`). The function returns the complete changed payload or None. In-place changes
        without a return value have no effect.
        """
        try:
            place = HookName(name)
        except ValueError:
            raise ValueError(f"unknown hook {name!r}; {_suggest_name(str(name), list(HookName))}") from None
        _check_callable(function, "the function of a hook")
        takes_about = _accepts(function, 2)
        if not takes_about and not _accepts(function, 1):
            raise TypeError("the function of a hook must accept (payload) or (payload, about)")
        if required and place is not HookName.BEFORE_TOOL_CALL:
            raise ValueError(f"only a BeforeToolCall hook can be required, not {name}, which cannot deny anything")
        label = f"{_get_name(function)} of {self._label}"
        self._add(HookOffer(place, label, function, takes_about, required))

    def tool(self, tool: ExtensionTool) -> None:
        """Offer a tool to the model.

        The model sees the tool's `description` if set, otherwise the first line of its class docstring. `preview` is
        optional: without it, a dry run reports the name and arguments.
        """
        wanted = "a tool's name must be up to 64 letters, digits, _ and -, not starting with a digit"
        name = _check_name(getattr(tool, "name", None), NAME_PATTERN, wanted)
        read_only: object = getattr(tool, "read_only", None)
        if not isinstance(read_only, bool):
            raise TypeError(f"the tool {name} needs read_only: True if it changes nothing, else False")
        arguments: object = getattr(tool, "arguments", None)
        check_arguments(name, arguments)
        if not inspect.isasyncgenfunction(getattr(tool, "run", None)) or not _accepts(tool.run, 2):
            raise TypeError(f"the tool {name} needs `async def run(self, arguments, context)` that yields its output")
        preview: Any = getattr(tool, "preview", None)
        if preview is not None and not inspect.iscoroutinefunction(preview):
            raise TypeError(f"preview of the tool {name} must be `async def preview(self, arguments, context)`")
        model = cast("type[Struct]", arguments)
        self._add(
            ToolOffer(name, read_only, model, _find_description(tool, name), tool, preview, _check_access(tool, name))
        )

    def command(self, name: str, function: CommandFunction, description: str = "") -> None:
        """Register the slash command `/name`: `function(arguments, cwd)` returns the prompt to send.

        It may be async.
        """
        name = _check_name(name, NAME_PATTERN, "a command's name: letters, digits, _ and -, not starting with a digit")
        _check_callable(function, f"the function of the command {name}")
        if not _accepts(function, 2):
            raise TypeError(f"the function of the command {name} must accept (arguments, cwd)")
        self._add(
            CommandOffer(
                name, to_one_line(_check_text(description, f"the description of the command {name}")), function
            )
        )

    def provider(self, name: str, factory: ProviderFactory) -> None:
        """Register the provider `name`: `factory(plan)` returns a `yarrow.provider.base.Provider`; it may be async.

        The plan is a `yarrow.provider.base.AdapterConfig`.
        """
        name = _check_name(
            name, PROVIDER_NAME_PATTERN, "a provider's name must be up to 64 letters, digits, _, - and dots"
        )
        _check_callable(factory, f"the factory of the provider {name}")
        if not _accepts(factory, 1):
            raise TypeError(f"the factory of the provider {name} must accept (plan)")
        self._add(ProviderOffer(name, factory))

    def finish(self) -> tuple[Registration, ...]:
        """Return the registrations in order; no more are accepted."""
        self._is_finished = True
        return tuple(self._registered)

    def _add(self, registration: Registration) -> None:
        if self._is_finished:
            raise ValueError("too late to register: do it while the extension's function runs")
        if len(self._registered) == MAX_REGISTRATIONS:
            raise ValueError(f"an extension can register at most {MAX_REGISTRATIONS:,} items")
        self._registered.append(registration)


def _check_name(given: object, form: re.Pattern[str], wanted: str) -> str:
    """Return a name as a plain string; extensions may not be type-checked. Raises ValueError."""
    if not isinstance(given, str) or not form.fullmatch(given):
        raise ValueError(f"{wanted}; not {given!r}")
    return str(given)


def _check_text(given: object, what: str) -> str:
    if not isinstance(given, str):
        raise TypeError(f"{what} must be a str")
    return given


def _check_callable(function: object, what: str) -> None:
    if not callable(function):
        raise TypeError(f"{what} must be a function, not {type(function).__name__}")


def _accepts(function: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # some functions written in C have no signature
        return count == 1
    return True


def _get_name(function: object) -> str:
    name: object = getattr(function, "__qualname__", None)
    return str(name if isinstance(name, str) else type(function).__name__)[:100]


def _find_description(tool: ExtensionTool, name: str) -> str:
    """Return the description that the model sees. Raises ValueError if there is none."""
    own: object = getattr(tool, "description", None)
    text = own if isinstance(own, str) else (type(tool).__doc__ or "").strip().partition("\n")[0]
    if not text.strip():
        raise ValueError(f"the tool {name} needs a docstring with a first line that describes it to the model")
    return text.strip()


def _check_access(tool: ExtensionTool, name: str) -> Access:
    """Return what a tool accesses. Raises TypeError and ValueError if the declaration is invalid."""
    declared: object = getattr(tool, "access", None)
    if declared is not None and not isinstance(declared, Access):
        raise TypeError(f"access of the tool {name} must be a yarrow.tool.base.Access, as in Access.file('path')")
    access = get_access(tool)
    try:
        access.check(tool.arguments)
    except ValueError as error:
        raise ValueError(f"the tool {name}: {error}") from None
    return access


def _suggest_name(name: str, known: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"use one of {', '.join(known)}"
