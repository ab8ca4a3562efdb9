"""Validation of the argument model of an extension's tool: decoding to it must run no extension code."""

from enum import Enum
from typing import Any, cast

import msgspec
from msgspec import Struct, inspect

from yarrow.tool.arguments import make_schema

SAFE_FACTORIES = (list, dict, set, tuple, frozenset)
"""Allowed default factories of a field."""


def check_arguments(tool: str, model: object) -> None:
    """Raise TypeError unless `model` is a `Struct` that forbids unknown fields and decodes without running code.

    Calls are decoded outside the tool's own thread, so no code of the model may run then.
    """
    if not (isinstance(model, type) and issubclass(model, Struct)):
        raise TypeError(f"the tool {tool} needs arguments: a class made from msgspec.Struct")
    if not model.__struct_config__.forbid_unknown_fields:
        raise TypeError(f"{model.__name__} of the tool {tool} must be declared with forbid_unknown_fields=True")
    try:
        schema = make_schema(model)
    except RecursionError:
        raise TypeError(f"{model.__name__} of the tool {tool} refers to itself, which no schema can say") from None
    if schema.get("type") != "object":
        raise TypeError(f"{model.__name__} of the tool {tool} must be a JSON object, so without array_like or a tag")
    odd = _find_code(inspect.type_info(model))
    if odd:
        raise TypeError(f"{model.__name__} of the tool {tool} has {odd}: check values in run instead")


def _find_code(node: Any) -> str:
    """Return the part of a type that would run code on decoding; empty if there is none."""
    cls: Any = getattr(node, "cls", None)
    if isinstance(node, inspect.CustomType):
        return f"a field of the type {cls.__name__}"
    if isinstance(cls, type):
        if hasattr(cls, "__post_init__"):
            return f"__post_init__ in {cls.__name__}"
        if issubclass(cls, Enum) and "_missing_" in vars(cls):
            return f"_missing_ in {cls.__name__}"
    for field in getattr(node, "fields", ()):
        factory = field.default_factory
        if factory is not msgspec.NODEFAULT and factory not in SAFE_FACTORIES:
            return f"a default_factory for {field.name}"
    return next(filter(None, (_find_code(part) for part in _list_part_types(node))), "")


def _list_part_types(node: Any) -> list[inspect.Type]:
    """Return the types that a type consists of."""
    values: list[Any] = [getattr(node, name) for name in getattr(node, "__struct_fields__", ())]
    several = [each for value in values if isinstance(value, tuple) for each in cast("tuple[Any, ...]", value)]
    found: list[inspect.Type] = []
    for value in (*values, *several):
        if isinstance(value, inspect.Type):
            found.append(value)
        elif isinstance(value, inspect.Field):
            found.append(value.type)
    return found
