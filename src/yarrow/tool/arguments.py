"""From a tool's argument model to the JSON Schema a model sees, and from the JSON it writes to a valid value."""

import functools
from contextlib import suppress
from typing import Any, cast

import msgspec
from msgspec import Struct

Schema = dict[str, Any]
NOISE = ("title", "default", "additionalProperties")
"""Words of a schema that cost tokens and tell a model nothing."""


class Invalid(Struct, frozen=True):
    """Why arguments were refused, as the model is told."""

    text: str


@functools.cache
def schema_of(model: type[Struct]) -> Schema:
    """Return the JSON Schema of an argument model: type object, no references, no noise. It is not to be changed."""
    (root,), definitions = msgspec.json.schema_components((model,), ref_template="{name}")
    return _flat(root, definitions)


def decode(text: str, model: type[Struct]) -> Struct | Invalid:
    """Decode the text of a JSON object to `model`. An optional argument that is null counts as left out."""
    schema = schema_of(model)
    try:
        raw: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        return Invalid(f"they are not a JSON object: {error}")
    if not isinstance(raw, dict):
        return Invalid("they are not a JSON object")
    given = cast("dict[str, Any]", raw)
    required: list[str] = schema.get("required", [])
    named = {name: value for name, value in given.items() if value is not None or name in required}
    try:
        return msgspec.convert(named, model)
    except msgspec.ValidationError as error:
        from yarrow.tool.coercion import coerced  # most arguments fit

        with suppress(msgspec.ValidationError):
            return msgspec.convert(coerced(named, schema), model)
        return Invalid(f"{error}. It takes {_signature(schema)}")


def _flat(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """Return the node with references replaced by what they name, and without noise."""
    if "$ref" in node:
        return _flat(definitions[node["$ref"]], definitions)
    flat = {key: value for key, value in node.items() if key not in NOISE}
    if "properties" in flat:
        flat.pop("description", None)  # the docstring of the struct; the tool has its own prose
        flat["properties"] = {name: _flat(value, definitions) for name, value in flat["properties"].items()}
    if isinstance(items := flat.get("items"), dict):
        flat["items"] = _flat(cast("Schema", items), definitions)
    if "anyOf" in flat:
        flat["anyOf"] = [_flat(value, definitions) for value in flat["anyOf"]]
    return flat


def _signature(schema: Schema) -> str:
    """Return the arguments with their types, such as `path (string), limit (integer, optional)`."""
    required: list[str] = schema.get("required", [])
    properties: dict[str, Schema] = schema.get("properties", {})
    return (
        ", ".join(
            f"{name} ({_type(value)}{'' if name in required else ', optional'})" for name, value in properties.items()
        )
        or "no arguments"
    )


def _type(schema: Schema) -> str:
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        items: Schema = schema.get("items", {})
        return f"array of {{{_signature(items)}}}" if "properties" in items else f"array of {_type(items)}"
    return str(schema.get("type", "any value"))
