"""One source of settings, as a file in JSON with comments, the environment or the flags; the origin of each value."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

from msgspec import Struct

from yarrow.config.settings import Settings

_TOKENS = re.compile(r'(?P<comment>//[^\r\n]*|/\*.*?\*/)|"(?:[^"\\]|\\.)*+"?|/\*.*', re.DOTALL)
"""A comment, or a token in which none can begin: a string, or an unterminated comment."""
_COMMAS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{,:]\s*,|(?P<trailing>,)(?=\s*[\]}])', re.DOTALL)
"""A trailing comma, or what resembles one: part of a string, or a comma that follows no value."""
_VISIBLE = re.compile(r"[^\r\n]")


def to_strict_json(text: str) -> str:
    """Return `text` with comments (`//`, `/* */`) and trailing commas replaced by spaces.

    Length, lines and columns stay the same, so that errors are reported at the right position.
    """
    return _COMMAS.sub(_blank, blank_comments(text))


def blank_comments(text: str) -> str:
    """Return `text` with comments replaced by spaces; trailing commas are kept."""
    return _TOKENS.sub(_blank, text)


def _blank(found: re.Match[str]) -> str:
    return _VISIBLE.sub(" ", found.group()) if found.lastgroup else found.group()


_SPACE = re.compile(r"[ \t\r\n]*")
_MAX_CACHED = 64
"""Maximum objects and lists with cached positions; the least recently used are evicted."""


def find_line(text: str, path: tuple[str | int, ...]) -> int:
    """Return the line, from 1, of the key or list item that `path` ends in. `text` must be valid JSON that contains it.

    For a duplicate key it is the last occurrence, which takes effect.
    """
    place = value = skip_space(text, 0)
    for step in path:
        place, value = find_members(text, value)[step]
    return text.count("\n", 0, place) + 1


def skip_space(text: str, index: int) -> int:
    """Return the index of the first character at or after `index` that is not white space."""
    found = _SPACE.match(text, index)
    return found.end() if found else index


# A caller that needs one line usually needs those of its neighbors too, even thousands.
@lru_cache(_MAX_CACHED)
def find_members(text: str, index: int) -> dict[str | int, tuple[int, int]]:
    """Return the start of each member of the object or list at `index`, and the start of its value."""
    # Imported here because only errors and `yarrow config` need it, and most runs have neither.
    from json import JSONDecoder

    decoder = JSONDecoder()
    found: dict[str | int, tuple[int, int]] = {}
    is_object = text[index] == "{"
    index = skip_space(text, index + 1)
    while text[index] not in "}]":
        start = index
        key: str | int = len(found)
        if is_object:
            key, index = decoder.raw_decode(text, index)
            index = skip_space(text, skip_space(text, index) + 1)
        found[key] = start, index
        _, index = decoder.raw_decode(text, index)
        index = skip_space(text, index)
        if text[index] == ",":
            index = skip_space(text, index + 1)
    return found


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


MODEL_PATHS: tuple[tuple[str, ...], ...] = (("model",), ("compaction", "model"))
"""Paths of settings that name a model of the selected provider."""


def remove_foreign_models(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings `below` without models of a provider other than the one that `above` selects."""
    kept = below
    for path in MODEL_PATHS:
        if has_value(below, path) and is_foreign_model(below, above, path):
            kept = _remove(kept, *path)
    return kept


def is_foreign_model(below: Mapping[str, Any], above: Mapping[str, Any], path: KeyPath) -> bool:
    """Return whether `above` selects another provider than `below` and has no model of its own at `path`."""
    if "provider" not in above or has_value(above, path) or not has_value(below, path):
        return False
    return find_provider(below.get("provider", ""), below.get("providers", {})) not in ("", above["provider"])


def find_model_provider(settings: Settings) -> str:
    """Return the provider that configured models belong to; empty if they belong to none in particular."""
    return find_provider(settings.provider, settings.providers)


def find_provider(named: str, configured: Mapping[str, object]) -> str:
    """Return the named provider, or the only configured one; empty if neither exists."""
    return named or (next(iter(configured)) if len(configured) == 1 else "")


def _remove(values: dict[str, Any], key: str, *rest: str) -> dict[str, Any]:
    if rest:
        return {**values, key: _remove(values[key], *rest)}
    return {name: value for name, value in values.items() if name != key}
