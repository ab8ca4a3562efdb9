"""From a tool's argument model to the JSON Schema a model sees, and from the JSON it writes to a valid value."""

import functools
from contextlib import suppress
from typing import Any, cast

import msgspec
from msgspec import Struct

Schema = dict[str, Any]
OMITTED_KEYWORDS = ("title", "default", "additionalProperties")
"""Words of a schema that cost tokens and tell a model nothing."""


class InvalidArguments(Struct, frozen=True):
    """Why arguments were refused, as the model is told."""

    text: str


@functools.cache
def make_schema(model: type[Struct]) -> Schema:
    """Return the JSON Schema of an argument model: type object, no references, no noise. It is not to be changed."""
    (root,), definitions = msgspec.json.schema_components((model,), ref_template="{name}")
    return _flatten(root, definitions)


def decode_arguments(text: str, model: type[Struct]) -> Struct | InvalidArguments:
    """Decode the text of a JSON object to `model`. An optional argument that is null counts as left out."""
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
        from yarrow.tool.coercion import coerce  # most arguments fit

        with suppress(msgspec.ValidationError):
            return msgspec.convert(coerce(named, schema), model)
        return InvalidArguments(f"{error}. It takes {_format_signature(schema)}")


def _flatten(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """Return the node with references replaced by what they name, and without noise."""
    if "$ref" in node:
        return _flatten(definitions[node["$ref"]], definitions)
    flat = {key: value for key, value in node.items() if key not in OMITTED_KEYWORDS}
    if "properties" in flat:
        flat.pop("description", None)  # the docstring of the struct; the tool has its own prose
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
