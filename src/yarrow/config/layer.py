"""One source of settings: a file, the environment or the flags, and where in it each value stands."""

from typing import Any, cast

from msgspec import Struct

from yarrow.config.jsonc import find_line
from yarrow.config.sanitizer import escape_unprintable

KeyPath = tuple[str | int, ...]
"""Keys and list indices from the top of a source to one value, as they are written in JSON."""


class FileLayer(Struct, frozen=True):
    """The settings of one file.

    `label` is how its path is told to people; `text` is strict JSON, with spaces where the file has comments.
    """

    label: str
    text: str
    values: dict[str, Any]

    def get_origin(self, path: KeyPath) -> str:
        """Return the place of a value as `file:line`."""
        return f"{self.label}:{find_line(self.text, path)}"


class NamedLayer(Struct, frozen=True):
    """Settings that each came under a name of their own: a variable or a flag, by top-level key."""

    values: dict[str, Any]
    names: dict[str, str]

    def get_origin(self, path: KeyPath) -> str:
        """Return the name under which a value came."""
        return self.names[str(path[0])]


Layer = FileLayer | NamedLayer


def format_path(path: KeyPath) -> str:
    """Return a path as people write it, such as `providers.work.models[0]`, safe for a terminal."""
    text = ""
    for step in path:
        match step:
            case int():
                text += f"[{step}]"
            case str():
                text += f".{step}" if text else step
    return escape_unprintable(text)


def merge_values(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return both; objects are merged key by key, anything else of `above` replaces what is `below`."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            merged[key] = merge_values(cast("dict[str, Any]", old), cast("dict[str, Any]", value))
        else:
            merged[key] = value
    return merged


def has_value(values: Any, path: KeyPath) -> bool:
    """Say whether a value stands at `path`."""
    for step in path:
        if not isinstance(values, dict) or step not in values:
            return False
        values = cast("dict[str | int, Any]", values)[step]
    return True


def get_value(values: Any, path: KeyPath) -> Any:
    """Return the value at `path`. Raises `KeyError` when `has_value` would say no."""
    for step in path:
        values = values[step]
    return values


def list_leaves(values: dict[str, Any], path: KeyPath = ()) -> list[KeyPath]:
    """Return the path of every value; objects are taken apart, a list or an empty object is one value."""
    found: list[KeyPath] = []
    for key, value in values.items():
        if isinstance(value, dict) and value:
            found.extend(list_leaves(cast("dict[str, Any]", value), (*path, key)))
        else:
            found.append((*path, key))
    return found
