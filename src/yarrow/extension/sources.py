"""Sources of extensions: an installed package, a file or the embedding program, and their files on disk."""

import importlib.util
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from yarrow.extension.host import ExtensionError

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from importlib.metadata import EntryPoint

    from yarrow.extension.discovery import ExtensionFunction


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


FUNCTION_NAME = "extend"
"""Name of the extension function in a file."""
MAX_FILE_BYTES = 1 << 20
"""Maximum bytes of an extension file; a larger one is not loaded."""

_numbers = count(1)


class ExtensionSource(Struct, frozen=True):
    """An extension that is not loaded yet."""

    label: str
    """Display name."""
    load_function: Callable[[], Any]
    """Returns the extension function; runs extension code and raises its errors."""


def from_entry_point(point: "EntryPoint") -> ExtensionSource:
    """Return the extension of an installed package."""
    return ExtensionSource(point.name, point.load)


def from_file(path: Path) -> ExtensionSource:
    """Return the extension in a file."""
    return ExtensionSource(str(path), lambda: _load_file(path))


def from_function(function: "ExtensionFunction") -> ExtensionSource:
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
