"""JSON Schema of the configuration file, generated from the types of the settings, for editors and validators."""

import ast
import inspect
from contextlib import suppress
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from yarrow.config import settings
from yarrow.config.settings import Settings
from yarrow.config.validation import MAX_NUMBER, POSITIVE_NUMBERS

DIALECT = "https://json-schema.org/draft/2020-12/schema"
USER_ONLY_NOTE = "User settings only."
"""Sentence in the docstring of a setting that a project's file cannot set."""


def build_json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a configuration file as plain JSON values."""
    schema = msgspec.json.schema(Settings)
    parts: dict[str, dict[str, Any]] = schema["$defs"]
    for kind, texts in _read_field_texts().items():
        properties = parts[kind]["properties"]
        for key, text in texts.items():
            properties[key]["description"] = text
    for name, part in parts.items():
        if "properties" in part:
            _order_choices(parts, getattr(settings, name))
        for each in part.get("properties", {}).values():
            _add_bounds(each)
    for group, key in POSITIVE_NUMBERS:
        kind = parts["Settings"]["properties"][group]["$ref"].rpartition("/")[2]
        parts[kind]["properties"][key]["minimum"] = 1
    own = {"type": "string", "description": "Location of this schema, for editors."}
    parts["Settings"]["properties"] = {"$schema": own, **parts["Settings"]["properties"]}
    return {"$schema": DIALECT, "title": "Yarrow configuration", **schema}


def _add_bounds(schema: dict[str, Any]) -> None:
    """Add the range of each number to the schema of one property."""
    for each in (schema, *schema.get("anyOf", ())):
        if each.get("type") in ("integer", "number"):
            each |= {"minimum": 0, "maximum": MAX_NUMBER}


def _order_choices(parts: dict[str, dict[str, Any]], kind: type[msgspec.Struct]) -> None:
    """List the choices of a struct's fields in the order of their declaration; msgspec sorts them."""
    keys = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    for name, hint in get_type_hints(kind).items():
        if isinstance(hint, type) and issubclass(hint, Enum):
            parts[hint.__name__]["enum"] = [each.value for each in hint]
        else:
            _order_literals(parts[kind.__name__]["properties"][keys[name]], hint)


def _order_literals(schema: dict[str, Any], hint: Any) -> None:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        schema["enum"] = list(arguments)
    elif origin is Union:
        _order_literals(schema["anyOf"][0], arguments[0])
    elif origin is dict and "additionalProperties" in schema:
        _order_literals(schema["additionalProperties"], arguments[1])


def _read_field_texts() -> dict[str, dict[str, str]]:
    """Return the docstring of each field by struct name and JSON key; empty without source code."""
    texts: dict[str, dict[str, str]] = {}
    with suppress(OSError):
        for node in ast.parse(inspect.getsource(settings)).body:
            if isinstance(node, ast.ClassDef) and issubclass(kind := getattr(settings, node.name), msgspec.Struct):
                keys = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
                texts[node.name] = {keys[name]: text for name, text in _list_texts(node)}
    return texts


def _list_texts(node: ast.ClassDef) -> list[tuple[str, str]]:
    """Return each documented field of a class with its docstring."""
    found: list[tuple[str, str]] = []
    for field, below in zip(node.body, node.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found.append((name, " ".join(text.split())))
            case _:
                continue
    return found
