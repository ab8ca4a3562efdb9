"""Tool arguments: the JSON Schema for the model, and the conversion of its JSON to valid values."""

import functools
import re
from contextlib import suppress
from typing import Any, cast

import msgspec
from msgspec import Struct

Schema = dict[str, Any]
OMITTED_KEYWORDS = ("title", "default", "additionalProperties")
"""Schema keywords that cost tokens and do not help a model."""


class InvalidArguments(Struct, frozen=True):
    """Reason why arguments were rejected, as shown to the model."""

    text: str


@functools.cache
def make_schema(model: type[Struct]) -> Schema:
    """Return the JSON Schema of an argument model, without references and noise. Do not modify it: it is cached."""
    (root,), definitions = msgspec.json.schema_components((model,), ref_template="{name}")
    return _flatten(root, definitions)


def decode_arguments(text: str, model: type[Struct]) -> Struct | InvalidArguments:
    """Decode a JSON object to `model`. An optional argument that is null counts as omitted."""
    schema = make_schema(model)
    try:
        raw: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        return InvalidArguments(f"they are not a JSON object: {error}")
    if not isinstance(raw, dict):
        return InvalidArguments("they are not a JSON object")
    given = cast("dict[str, Any]", raw)
    required: list[str] = schema.get("required", [])
    named = {name: value for name, value in given.items() if value is not None or name in required}
    try:
        return msgspec.convert(named, model)
    except msgspec.ValidationError as error:
        with suppress(msgspec.ValidationError):
            return msgspec.convert(coerce(named, schema), model)
        return InvalidArguments(f"{error}. Expected: {_format_signature(schema)}")


def _flatten(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """Return the node with references resolved and without noise."""
    if "$ref" in node:
        return _flatten(definitions[node["$ref"]], definitions)
    flat = {key: value for key, value in node.items() if key not in OMITTED_KEYWORDS}
    if "properties" in flat:
        flat.pop("description", None)  # the struct's docstring; the tool has its own description
        flat["properties"] = {name: _flatten(value, definitions) for name, value in flat["properties"].items()}
    if isinstance(items := flat.get("items"), dict):
        flat["items"] = _flatten(cast("Schema", items), definitions)
    if "anyOf" in flat:
        flat["anyOf"] = [_flatten(value, definitions) for value in flat["anyOf"]]
    return flat


def _format_signature(schema: Schema) -> str:
    """Return the arguments with their types, such as `path (string), limit (integer, optional)`."""
    required: list[str] = schema.get("required", [])
    properties: dict[str, Schema] = schema.get("properties", {})
    return (
        ", ".join(
            f"{name} ({_format_type(value)}{'' if name in required else ', optional'})"
            for name, value in properties.items()
        )
        or "no arguments"
    )


def _format_type(schema: Schema) -> str:
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        items: Schema = schema.get("items", {})
        return (
            f"array of {{{_format_signature(items)}}}" if "properties" in items else f"array of {_format_type(items)}"
        )
    return str(schema.get("type", "any value"))


_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,17})?(?:[eE][+-]?[0-9]{1,3})?")
_TEXT_ARGUMENTS = frozenset({"content"})
"""Arguments with the content of a file: an object passed for one is serialized as JSON."""


def coerce(value: object, schema: Schema, name: str = "") -> object:
    """Convert a value to the type that the schema requires; return it unchanged if it already fits or is ambiguous.

    `name` is the name of the argument. Converts nested values too; the result may still be invalid.
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
    """Return the value of a JSON object or array; None for any other text."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
