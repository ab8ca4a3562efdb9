"""Assembly of contributions: loads each extension, from a package, file or function, in its own thread."""

import importlib.util
import re
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from inspect import isawaitable
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, assert_never

from msgspec import Struct
from msgspec.structs import replace

from yarrow.agent.hooks import ContributedCommand, Contributions, Hook, HookName, HookRegistry
from yarrow.config.settings import BUILT_IN_PROVIDERS
from yarrow.extension.api import CommandOffer, HookOffer, ProviderOffer, Registration, Yarrow, host_command, host_hook
from yarrow.extension.extension_host import ExtensionError, ExtensionHost
from yarrow.extension.providers import host_provider_factory
from yarrow.extension.tools import HostedTool, ToolOffer
from yarrow.provider.factory import ProviderBuilder

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from importlib.metadata import EntryPoint

MAX_LOAD_SECONDS = 5.0
"""Timeout in seconds for importing an extension and registering its contributions."""
FUNCTION_NAME = "extend"
"""Name of the extension function in a file."""
MAX_FILE_BYTES = 1 << 20
"""Maximum bytes of an extension file; a larger one is not loaded."""


class ExtensionSource(Struct, frozen=True):
    """An extension that is not loaded yet."""

    label: str
    """Display name."""
    load_function: Callable[[], Any]
    """Returns the extension function; runs extension code and raises its errors."""


class ContributionAssembly:
    """The contributions registered so far."""

    def __init__(self, tools: Collection[str], warnings: Collection[str]) -> None:
        self.hosts: list[ExtensionHost] = []
        """Hosts of the loaded extensions."""
        self._tool_names = set(tools)
        self._warnings = list(warnings)
        self._hooks: dict[HookName, list[Hook]] = {}
        self._tools: list[HostedTool] = []
        self._commands: dict[str, ContributedCommand] = {}
        self._providers: dict[str, ProviderBuilder] = {}

    def load(self, source: ExtensionSource) -> None:
        """Load one extension and add its contributions; if it fails, add none and record a warning."""
        host = ExtensionHost(source.label)
        yarrow = Yarrow(source.label)

        async def register() -> tuple[Registration, ...]:
            function = source.load_function()
            if not callable(function):
                raise TypeError(f"expected a function that accepts a Yarrow, not {type(function).__name__}")
            result: object = function(yarrow)
            if isawaitable(result):
                await result
            return yarrow.finish()

        try:
            registered = host.run_blocking(register, MAX_LOAD_SECONDS)
        except ExtensionError as error:
            host.stop()
            self._warnings.append(f"the extension {source.label} was skipped: {error.message}")
            return
        self.hosts.append(host)
        for registration in registered:
            self._add_registration(host, registration)

    def make_contributions(self, files: tuple[Path, ...] = ()) -> Contributions:
        """Return all contributions, in order; `files` are the files that the extensions were loaded from."""
        return Contributions(
            HookRegistry(self._hooks),
            tuple(self._tools),
            tuple(self._commands.values()),
            self._providers,
            files,
            tuple(self._warnings),
        )

    def _add_registration(self, host: ExtensionHost, registration: Registration) -> None:
        match registration:
            case HookOffer(name, label, function, takes_about, required):
                hook = host_hook(host, label, function, takes_context=takes_about)
                hook = replace(hook, required=required)
                self._hooks.setdefault(name, []).append(hook)
            case ToolOffer():
                if self._is_name_free(host, registration.name, kind="tool", taken=self._tool_names):
                    self._tool_names.add(registration.name)
                    self._tools.append(HostedTool(host, registration))
            case CommandOffer(name, description, function):
                if self._is_name_free(host, name, kind="command", taken=self._commands):
                    self._commands[name] = host_command(host, name, function, description=description)
            case ProviderOffer(name, factory):
                if self._is_name_free(host, name, kind="provider", taken={*BUILT_IN_PROVIDERS, *self._providers}):
                    self._providers[name] = host_provider_factory(host, factory)
            case _:
                assert_never(registration)

    def _is_name_free(self, host: ExtensionHost, name: str, *, kind: str, taken: Collection[str]) -> bool:
        if name in taken:
            self._warnings.append(f"the {kind} {name} of the extension {host.label} was skipped: the name is in use")
        return name not in taken


_numbers = count(1)


def from_entry_point(point: "EntryPoint") -> ExtensionSource:
    """Return the extension of an installed package."""
    return ExtensionSource(point.name, point.load)


def from_file(path: Path) -> ExtensionSource:
    """Return the extension in a file."""
    return ExtensionSource(str(path), lambda: _load_file(path))


def from_function(function: Callable[[Yarrow], Any]) -> ExtensionSource:
    """Return the extension of an embedding program."""
    name: object = getattr(function, "__qualname__", None)
    return ExtensionSource(name if isinstance(name, str) else type(function).__name__, lambda: function)


def _load_file(path: Path) -> Any:
    if not path.exists():
        raise ExtensionError("no such file; create it, or remove it from `extensions` in your settings")
    # Reading anything but a regular file may never end or may wait for a writer.
    if not stat.S_ISREG(path.stat().st_mode):
        raise ExtensionError("it is not a regular file")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ExtensionError(f"it is larger than {MAX_FILE_BYTES:,} bytes")
    code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    # A unique module name: files of the same name become separate modules, and none hides an installed one.
    module = ModuleType(f"yarrow_extension_{next(_numbers)}_{re.sub(r'[^a-zA-Z0-9_]', '_', path.stem)}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # its classes' annotations are resolved there
    exec(code, vars(module))  # noqa: S102 (the user named this file as an extension, to be executed)
    if FUNCTION_NAME not in vars(module):
        raise ExtensionError(f"it has no function {FUNCTION_NAME} that accepts a Yarrow")
    return vars(module)[FUNCTION_NAME]


def list_origins(files: Sequence[Path], points: "Iterable[EntryPoint]", before: frozenset[str]) -> tuple[Path, ...]:
    """Return `files`, the entry points' packages and the modules imported since `before`, with their bytecode.

    Modules in the interpreter's own directories are omitted.
    """
    found = dict.fromkeys(files)
    for point in points:
        # If a package fails partway, the next start still executes the existing part.
        with suppress(ImportError, ValueError, AttributeError):
            if (spec := importlib.util.find_spec(point.module.partition(".")[0])) is not None:
                found |= dict.fromkeys(_list_files(spec))
    specs = (
        getattr(sys.modules.get(name), "__spec__", None)
        for name in sys.modules.keys() - before
        if not name.startswith("yarrow.")
    )
    found |= dict.fromkeys(path for spec in specs if spec is not None for path in _list_files(spec))
    return tuple(path for path in found if path in files or not _is_of_interpreter(path))


def _list_files(spec: "ModuleSpec") -> Iterator[Path]:
    if spec.submodule_search_locations is not None:
        yield from map(Path, spec.submodule_search_locations)
    elif spec.has_location and spec.origin is not None:
        yield Path(spec.origin)
        if spec.cached is not None:
            yield Path(spec.cached)


def _is_of_interpreter(path: Path) -> bool:
    return any(path.is_relative_to(prefix) for prefix in (sys.prefix, sys.base_prefix))
