"""Answers of servers about their models: lists, windows, and the errors of a server that gives none."""

from collections.abc import Sequence
from typing import Any, cast

from yarrow.errors import Code, ProviderError
from yarrow.provider.base import ModelEntry

UNSUPPORTED_CODES = frozenset(
    {Code.NOT_FOUND, Code.UNSUPPORTED_FEATURE, Code.INVALID_REQUEST, Code.MALFORMED_RESPONSE, Code.SERVER_ERROR}
)
"""Errors of a server that lacks a request about models, is too old for it, or has it disabled."""

_WINDOW_FIELDS = ("max_model_len", "context_length", "context_window", "max_context_length", "n_ctx")
"""Names under which servers report a model's window, in tokens."""


def parse_models(value: object) -> list[ModelEntry]:
    """Return the models of a decoded list: an object with `data` or `models`, or a bare array."""
    found: list[ModelEntry] = []
    for entry in parse_rows(value):
        name = entry.get("id") or entry.get("name") or entry.get("model") or entry.get("key")
        if isinstance(name, str) and name:
            found.append(ModelEntry(name, _find_window(entry)))
    return found


def parse_rows(value: object) -> list[dict[str, Any]]:
    """Return the objects of a decoded list."""
    if isinstance(value, dict):
        outer = cast("dict[str, Any]", value)
        value = outer.get("data") or outer.get("models")
    entries = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", entry) for entry in entries if isinstance(entry, dict)]


def _find_window(entry: dict[str, Any]) -> int:
    """Return the smallest window that an entry reports: its own, its best host's or its loaded file's."""
    places = [entry, entry.get("top_provider"), entry.get("meta")]
    windows = [
        value
        for place in places
        if isinstance(place, dict)
        for name in _WINDOW_FIELDS
        if isinstance(value := cast("dict[str, Any]", place).get(name), int) and value > 0
    ]
    return min(windows, default=0)


def as_object(value: object) -> dict[str, Any]:
    """Return a decoded object; empty if the value is none."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_count(value: object) -> int:
    """Return a positive number; 0 if the value is none."""
    return value if isinstance(value, int) and value > 0 else 0


MAX_NAMED_MODELS = 5
"""Maximum models named in an error."""
MAX_NAME_CHARACTERS = 100
"""Maximum characters shown of such a name."""


def make_missing_model_error(name: str, listed: Sequence[str] = ()) -> ProviderError:
    """Return PROVIDER_SETUP for the provider `name`, which cannot choose one of the `listed` models itself."""
    named = ", ".join(one[:MAX_NAME_CHARACTERS] for one in listed[:MAX_NAMED_MODELS])
    more = ", ..." if len(listed) > MAX_NAMED_MODELS else ""
    which = f"the server lists {named}{more}" if listed else "--list-models shows them"
    return ProviderError(Code.PROVIDER_SETUP, f"{name} needs a model: use -m, or set `model` ({which})")
