"""The `reasoning_details` of OpenRouter: joined from fragments, kept as opaque text, sent back as they came."""

from typing import Any, cast

import msgspec

FIELD = "reasoning_details"
_GROWING = ("text", "summary", "data")
"""Fields of a detail that come in pieces; of all others the last value that is not null counts."""


class ReasoningDetails:
    """The details of one answer, in the making."""

    def __init__(self) -> None:
        self._details: dict[object, dict[str, Any]] = {}

    def add(self, fragments: list[dict[str, Any]]) -> None:
        """Take the fragments of one chunk; those with one index and type are one detail."""
        for fragment in fragments:
            key = (fragment.get("index"), fragment.get("type"))
            known = self._details.setdefault(str(key), {})
            for name, value in fragment.items():
                if name in _GROWING and isinstance(value, str) and isinstance(known.get(name), str):
                    known[name] += value
                elif value is not None or name not in known:
                    known[name] = value

    def opaque(self) -> str:
        """Return the details as JSON text; empty when there were none."""
        return msgspec.json.encode({FIELD: list(self._details.values())}).decode() if self._details else ""


def details_of(opaque: str) -> list[Any]:
    """Return the details that an opaque text holds; empty when it holds something else."""
    try:
        value = msgspec.json.decode(opaque)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []
    details = cast("dict[str, Any]", value).get(FIELD) if isinstance(value, dict) else None
    return cast("list[Any]", details) if isinstance(details, list) else []
