"""Source files of the loaded extensions, which the next start executes again."""

import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from importlib.metadata import EntryPoint


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
