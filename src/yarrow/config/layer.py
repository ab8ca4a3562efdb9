"""One source of settings (a file, the environment or the flags), the origin of each value, and names as displayed."""

from typing import Any, cast

from msgspec import Struct

from yarrow.config.jsonc import find_line


def escape_unprintable(text: str) -> str:
    r"""Return `text` with control, invisible and non-UTF-8 characters escaped, as in `\x1b`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


KeyPath = tuple[str | int, ...]
"""Keys and list indices from the top of a source to one value, as written in JSON."""


class FileLayer(Struct, frozen=True):
    """Settings of one file.

    `label` is its path for display; `text` is strict JSON, with spaces in place of comments.
    """

    label: str
    text: str
    values: dict[str, Any]

    def get_origin(self, path: KeyPath) -> str:
        """Return the origin of a value as `file:line`."""
        return f"{self.label}:{find_line(self.text, path)}"


class NamedLayer(Struct, frozen=True):
    """Settings with a name each, a variable or a flag, by top-level key."""

    values: dict[str, Any]
    names: dict[str, str]

    def get_origin(self, path: KeyPath) -> str:
        """Return the name of the variable or flag that set a value."""
        return self.names[str(path[0])]


Layer = FileLayer | NamedLayer


def format_path(path: KeyPath) -> str:
    """Format a path for display, such as `providers.work.models[0]`, safe for a terminal."""
    text = ""
    for step in path:
        match step:
            case int():
                text += f"[{step}]"
            case str():
                text += f".{step}" if text else step
    return escape_unprintable(text)


def merge_values(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Merge values: objects are merged key by key, any other value in `above` replaces the one in `below`."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            merged[key] = merge_values(cast("dict[str, Any]", old), cast("dict[str, Any]", value))
        else:
            merged[key] = value
    return merged


def has_value(values: Any, path: KeyPath) -> bool:
    """Return whether a value exists at `path`."""
    for step in path:
        if not isinstance(values, dict) or step not in values:
            return False
        values = cast("dict[str | int, Any]", values)[step]
    return True


def get_value(values: Any, path: KeyPath) -> Any:
    """Return the value at `path`. Raises `KeyError` if it does not exist."""
    for step in path:
        values = values[step]
    return values


def list_leaves(values: dict[str, Any], path: KeyPath = ()) -> list[KeyPath]:
    """Return the path of every value. Objects are traversed; a list or an empty object is one value."""
    found: list[KeyPath] = []
    for key, value in values.items():
        if isinstance(value, dict) and value:
            found.extend(list_leaves(cast("dict[str, Any]", value), (*path, key)))
        else:
            found.append((*path, key))
    return found
