"""What an extension's function is given: an object to register hooks, tools, commands and providers with."""

import inspect
import re
from collections.abc import Callable
from typing import Any, cast

from msgspec import Struct

from yarrow.agent.hooks import HookName
from yarrow.extension.commands import CommandFunction
from yarrow.extension.hooks import HookFunction
from yarrow.extension.models import check_arguments
from yarrow.extension.providers import ProviderFactory
from yarrow.extension.tools import ExtensionTool, Offer
from yarrow.prompt.front_matter import one_line
from yarrow.tool.access import Access, access_of

NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
PROVIDER_NAME = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,63}")
MAX_REGISTRATIONS = 1000
"""Of one extension; one more is an error."""


class HookOffer(Struct, frozen=True):
    """A hook as it was registered."""

    name: HookName
    label: str
    function: HookFunction
    takes_about: bool
    required: bool


class CommandOffer(Struct, frozen=True):
    """A command as it was registered."""

    name: str
    description: str
    function: CommandFunction


class ProviderOffer(Struct, frozen=True):
    """A provider as it was registered."""

    name: str
    factory: ProviderFactory


Registration = HookOffer | Offer | CommandOffer | ProviderOffer


class Yarrow:
    """Everything that an extension can add. What is wrong raises TypeError or ValueError and says what is right.

    It is used while the extension's function runs; after that it takes nothing any more. All functions that are
    registered run in one thread of the extension's own, on one event loop of asyncio.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._registered: list[Registration] = []
        self._over = False

    def hook(self, name: str, function: HookFunction, *, required: bool = False) -> None:
        """Call `function(payload)` or `function(payload, about)` at the place `name`; it may be async.

        A BeforeToolCall hook that is `required` is a guard: when it fails, the call that it should look at is not run.

        The payload is a dict (`yarrow.agent.hook_payloads`). The function returns it, whole and changed, or
        None. What it only changes in place changes nothing.
        """
        try:
            place = HookName(name)
        except ValueError:
            raise ValueError(f"there is no hook {name!r}; {_nearest(str(name), list(HookName))}") from None
        _check_callable(function, "the function of a hook")
        takes_about = _takes(function, 2)
        if not takes_about and not _takes(function, 1):
            raise TypeError("the function of a hook takes (payload) or (payload, about)")
        if required and place is not HookName.BEFORE_TOOL_CALL:
            raise ValueError(f"only a BeforeToolCall hook can be required, not {name}: nothing can be refused there")
        label = f"{_name_of(function)} of {self._label}"
        self._add(HookOffer(place, label, function, takes_about, required))

    def tool(self, tool: ExtensionTool) -> None:
        """Offer a tool to the model.

        The model sees the tool's `description` if it has one, else the first line of its class's docstring.
        `preview` may be missing: then a dry run tells name and arguments.
        """
        wanted = "a tool's name is letters, digits, _ and -, at most 64, the first no digit"
        name = _name(getattr(tool, "name", None), NAME, wanted)
        read_only: object = getattr(tool, "read_only", None)
        if not isinstance(read_only, bool):
            raise TypeError(f"the tool {name} needs read_only: True when it changes nothing, else False")
        arguments: object = getattr(tool, "arguments", None)
        check_arguments(name, arguments)
        if not inspect.isasyncgenfunction(getattr(tool, "run", None)) or not _takes(tool.run, 2):
            raise TypeError(f"the tool {name} needs `async def run(self, arguments, context)` that yields its output")
        preview: Any = getattr(tool, "preview", None)
        if preview is not None and not inspect.iscoroutinefunction(preview):
            raise TypeError(f"preview of the tool {name} must be `async def preview(self, arguments, context)`")
        model = cast("type[Struct]", arguments)
        self._add(Offer(name, read_only, model, _description(tool, name), tool, preview, _access(tool, name)))

    def command(self, name: str, function: CommandFunction, description: str = "") -> None:
        """Let a prompt begin with `/name`: `function(arguments, cwd)` returns the prompt to send; it may be async."""
        name = _name(name, NAME, "a command's name is letters, digits, _ and -, the first no digit")
        _check_callable(function, f"the function of the command {name}")
        if not _takes(function, 2):
            raise TypeError(f"the function of the command {name} takes (arguments, cwd)")
        self._add(CommandOffer(name, one_line(_text(description, f"the description of the command {name}")), function))

    def provider(self, name: str, factory: ProviderFactory) -> None:
        """Let users name the provider `name`: `factory(plan)` makes a `yarrow.provider.base.Provider`; may be async.

        The plan is a `yarrow.provider.factory.Plan`.
        """
        name = _name(name, PROVIDER_NAME, "a provider's name is letters, digits, _, - and dots, at most 64")
        _check_callable(factory, f"the factory of the provider {name}")
        if not _takes(factory, 1):
            raise TypeError(f"the factory of the provider {name} takes (plan)")
        self._add(ProviderOffer(name, factory))

    def finish(self) -> tuple[Registration, ...]:
        """Return what was registered, in order; nothing is taken any more."""
        self._over = True
        return tuple(self._registered)

    def _add(self, registration: Registration) -> None:
        if self._over:
            raise ValueError("it is too late to register: that is done while the extension's function runs")
        if len(self._registered) == MAX_REGISTRATIONS:
            raise ValueError(f"an extension registers at most {MAX_REGISTRATIONS:,} things")
        self._registered.append(registration)


def _name(given: object, form: re.Pattern[str], wanted: str) -> str:
    """Return a name as plain text: no type checker has looked at an extension. Raises ValueError."""
    if not isinstance(given, str) or not form.fullmatch(given):
        raise ValueError(f"{wanted}; not {given!r}")
    return str(given)


def _text(given: object, what: str) -> str:
    if not isinstance(given, str):
        raise TypeError(f"{what} must be a str")
    return given


def _check_callable(function: object, what: str) -> None:
    if not callable(function):
        raise TypeError(f"{what} must be a function, not {type(function).__name__}")


def _takes(function: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # of some that are written in C nothing is known
        return count == 1
    return True


def _name_of(function: object) -> str:
    name: object = getattr(function, "__qualname__", None)
    return str(name if isinstance(name, str) else type(function).__name__)[:100]


def _description(tool: ExtensionTool, name: str) -> str:
    """Return the prose the model sees. Raises ValueError when there is none."""
    own: object = getattr(tool, "description", None)
    text = own if isinstance(own, str) else (type(tool).__doc__ or "").strip().partition("\n")[0]
    if not text.strip():
        raise ValueError(f"the tool {name} needs a docstring, whose first line tells the model what it does")
    return text.strip()


def _access(tool: ExtensionTool, name: str) -> Access:
    """Return what a tool touches. Raises TypeError and ValueError when it declares that wrongly."""
    declared: object = getattr(tool, "access", None)
    if declared is not None and not isinstance(declared, Access):
        raise TypeError(f"access of the tool {name} must be a yarrow.tool.access.Access, as in Access.file('path')")
    access = access_of(tool)
    try:
        access.check(tool.arguments)
    except ValueError as error:
        raise ValueError(f"the tool {name}: {error}") from None
    return access


def _nearest(name: str, known: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
