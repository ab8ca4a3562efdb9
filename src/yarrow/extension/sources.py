"""Sources of extensions: an installed package, a file, or the program that embeds Yarrow."""

import re
import stat
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from yarrow.extension.extension_errors import ExtensionError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from yarrow.extension.discovery import ExtensionFunction

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
        raise ExtensionError("there is no such file; put it there, or take it out of `extensions` in your settings")
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
        raise ExtensionError(f"it has no function {FUNCTION_NAME}, which takes a Yarrow")
    return vars(module)[FUNCTION_NAME]
