"""Writes the schema of a tool's parameters in the words that an Ollama server can read."""

from typing import Any, cast

_SUBSCHEMAS = ("properties", "$defs")
"""Words whose values are schemas by name."""
_KINDS: dict[str, type | tuple[type, ...]] = {
    "type": (str, list),
    "description": str,
    "enum": list,
    "required": list,
    "anyOf": list,
    "properties": dict,
    "$defs": dict,
}
"""What the server reads these words as; with anything else there it refuses the request."""


def simplify_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that the server can read, without what it cannot; the original stays as it is."""
    plain = {word: value for word, value in schema.items() if isinstance(value, _KINDS.get(word, object))}
    for word in _SUBSCHEMAS:
        if word in plain:
            plain[word] = {name: _simplify(one) for name, one in cast("dict[str, Any]", plain[word]).items()}
    if "anyOf" in plain:
        plain["anyOf"] = [_simplify(one) for one in cast("list[Any]", plain["anyOf"])]
    return plain


def _simplify(schema: object) -> dict[str, Any]:
    """Return a schema as an object: a mere true or false is none that the server knows."""
    return simplify_schema(cast("dict[str, Any]", schema)) if isinstance(schema, dict) else {}
