"""Reduces a JSON Schema to the words that Gemini takes."""

from typing import Any, cast

_PLAIN = frozenset({"type", "title", "description", "minItems", "maxItems", "minimum", "maximum", "$ref"})
"""Words whose value goes through as it is."""
_ONE = frozenset({"items"})
_LIST = frozenset({"anyOf", "oneOf", "prefixItems"})
_NAMED = frozenset({"properties", "$defs"})
_FORMATS = ("date-time", "float", "double", "int32", "int64")
ALLOWED_KEYWORDS = _PLAIN | _ONE | _LIST | _NAMED | {"enum", "format", "required"}
"""Every word that is left in a schema, at any depth."""

Schema = dict[str, Any]


def reduce_schema(schema: object) -> Schema:
    """Return a schema of nothing but `ALLOWED_KEYWORDS`; the one that was given stays as it is.

    What is lost are limits, which the tool checks anyway. A constant becomes the only value on offer.
    """
    given: dict[str, object] = _object(schema)
    result: Schema = {}
    for word, value in given.items():
        if word in _PLAIN or (word == "format" and value in _FORMATS):
            result[word] = value
        elif word in _ONE:
            result[word] = reduce_schema(value)
        elif word in _LIST and _array(value):
            result[word] = [reduce_schema(entry) for entry in _array(value)]
        elif word in _NAMED and _object(value):
            result[word] = {name: reduce_schema(entry) for name, entry in _object(value).items()}
    if values := _values(given):
        result["enum"] = values
    if required := _required(given, result):
        result["required"] = required
    return result


def _values(schema: Schema) -> list[str]:
    """Return the values on offer; the backend knows them only as strings, so others are not told."""
    values = [schema["const"]] if "const" in schema else _array(schema.get("enum"))
    texts = [value for value in values if isinstance(value, str) and value]
    return texts if len(texts) == len(values) else []


def _required(schema: Schema, result: Schema) -> list[str]:
    """Return the required properties that are there."""
    known = _object(result.get("properties"))
    return [name for name in _array(schema.get("required")) if isinstance(name, str) and name in known]


def _object(value: object) -> Schema:
    """Return an object of the schema; true and false, which are schemas too, are taken for an empty one."""
    return cast("Schema", value) if isinstance(value, dict) else {}


def _array(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
