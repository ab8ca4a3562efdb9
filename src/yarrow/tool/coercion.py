"""Conversion of arguments to the types of a tool's schema, where a value of another type has exactly one reading."""

import re
from typing import cast

import msgspec

from yarrow.tool.arguments import Schema

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,17})?(?:[eE][+-]?[0-9]{1,3})?")
_TEXT_ARGUMENTS = frozenset({"content"})
"""Arguments that are the text of a file: an object is meant as its JSON."""


def coerce(value: object, schema: Schema, name: str = "") -> object:
    """Return a value as the schema wants it, or as it is where that is right already or has no single reading.

    `name` is that of the argument. It goes to any depth; what it returns may still be refused.
    """
    kinds = _list_alternatives(schema)
    if len(kinds) != 1:
        return value
    (chosen,) = kinds
    match chosen.get("type"):
        case "integer":
            return _coerce_integer(value)
        case "number":
            return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value.strip()) else value
        case "boolean":
            return {"true": True, "false": False}.get(value.strip().lower(), value) if isinstance(value, str) else value
        case "array":
            return _coerce_array(value, chosen, name)
        case "object":
            return _coerce_object(value, chosen)
        case "string" if name in _TEXT_ARGUMENTS and isinstance(value, dict | list):
            return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
        case _:
            return value


def _list_alternatives(schema: Schema) -> list[Schema]:
    """Return the alternatives of a schema other than null."""
    alternatives: list[Schema] = schema.get("anyOf", [schema])
    return [one for one in alternatives if one.get("type") != "null"]


def _coerce_integer(value: object) -> object:
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _coerce_array(value: object, schema: Schema, name: str) -> object:
    items: Schema = schema.get("items", {})
    if isinstance(value, str):
        inner = _decode_json(value)
        if isinstance(inner, list) or (isinstance(inner, dict) and _accepts(items, "object")):
            value = cast("object", inner)
        elif _accepts(items, "string"):
            value = [value]
    if isinstance(value, dict) and _accepts(items, "object"):
        value = [cast("object", value)]
    if not isinstance(value, list):
        return cast("object", value)
    return [coerce(one, items, name) for one in cast("list[object]", value)]


def _coerce_object(value: object, schema: Schema) -> object:
    if isinstance(value, str) and isinstance(inner := _decode_json(value), dict):
        value = cast("object", inner)
    if not isinstance(value, dict):
        return value
    properties: dict[str, Schema] = schema.get("properties", {})
    members = cast("dict[str, object]", value).items()
    return {name: coerce(one, properties[name], name) if name in properties else one for name, one in members}


def _accepts(items: Schema, kind: str) -> bool:
    kinds = _list_alternatives(items)
    return len(kinds) == 1 and kinds[0].get("type") == kind


def _decode_json(text: str) -> object:
    """Return the value of a JSON text; None for what is none."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
