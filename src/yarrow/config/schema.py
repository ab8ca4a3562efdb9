"""JSON Schema of the configuration file, generated from the types of the settings, for editors and validators."""

import ast
import inspect
from contextlib import suppress
from typing import Any

import msgspec

from yarrow.config import settings
from yarrow.config.settings import Settings
from yarrow.config.validation import MAX_NUMBER

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def build_json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a configuration file as plain JSON values."""
    schema = msgspec.json.schema(Settings)
    parts: dict[str, dict[str, Any]] = schema["$defs"]
    for kind, texts in _read_field_texts().items():
        properties = parts[kind]["properties"]
        for key, text in texts.items():
            properties[key]["description"] = text
    for part in parts.values():
        for each in part.get("properties", {}).values():
            _add_bounds(each)
    own = {"type": "string", "description": "Location of this schema, for editors."}
    parts["Settings"]["properties"] = {"$schema": own, **parts["Settings"]["properties"]}
    return {"$schema": DIALECT, "title": "Yarrow configuration", **schema}


def _add_bounds(schema: dict[str, Any]) -> None:
    """Add the range of each number to the schema of one property."""
    for each in (schema, *schema.get("anyOf", ())):
        if each.get("type") in ("integer", "number"):
            each |= {"minimum": 0, "maximum": MAX_NUMBER}


def _read_field_texts() -> dict[str, dict[str, str]]:
    """Return the docstring of each field by struct name and JSON key; empty without source code."""
    texts: dict[str, dict[str, str]] = {}
    with suppress(OSError):
        for node in ast.parse(inspect.getsource(settings)).body:
            if isinstance(node, ast.ClassDef):
                kind = getattr(settings, node.name)
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
