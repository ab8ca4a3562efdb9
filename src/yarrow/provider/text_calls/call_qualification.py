"""Qualification of written calls: one runs only if it names an offered tool and has valid arguments."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from yarrow.message import ToolCall, ToolSpec
from yarrow.provider.stream_framing import decode_json_object, is_json_object
from yarrow.provider.text_calls.call_scanner import WrittenCall
from yarrow.provider.tool_calls import find_offered_name, new_call_id, repair_arguments

Schema = dict[str, Any]

_INTEGER = re.compile(r"\s*-?\d{1,18}\s*")
_NUMBER = re.compile(r"\s*-?\d{1,18}(?:\.\d{1,17})?(?:[eE][+-]?\d{1,3})?\s*")
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "integer": int,
    "number": (int, float),
    "array": list,
    "object": dict,
    "string": str,
}


def qualify_calls(calls: Sequence[WrittenCall], tools: Mapping[str, ToolSpec]) -> list[ToolCall] | str:
    """Return the calls if all of them may run, otherwise the first reason why one may not."""
    qualified: list[ToolCall] = []
    for call in calls:
        made = qualify_call(call, tools)
        if isinstance(made, str):
            return made
        qualified.append(made)
    return qualified


def qualify_call(call: WrittenCall, tools: Mapping[str, ToolSpec]) -> ToolCall | str:
    """Return the call if it may run, otherwise the reason why not."""
    if not call.name:
        return "it is not valid JSON"
    name = find_offered_name(call.name, tools)
    tool = tools.get(name)
    if tool is None:
        return f"no tool {call.name[:64]!r} was offered"
    arguments = _find_arguments(call, tool.parameters)
    if not arguments:
        return "its arguments are not a JSON object"
    if problem := _find_problem(decode_json_object(arguments), tool.parameters):
        return problem
    return ToolCall(new_call_id(), name, arguments)


def _find_arguments(call: WrittenCall, schema: Schema) -> str:
    """Return the arguments as the text of a JSON object; empty if they are none."""
    arguments = call.arguments
    if not isinstance(arguments, str):
        properties = schema.get("properties", {})
        values = {name: _convert_text(text, properties.get(name, {})) for name, text in arguments.items()}
        return msgspec.json.encode(values).decode()
    if arguments[:1] == '"':  # some models quote them twice
        try:
            arguments = msgspec.json.decode(arguments, type=str)
        except (msgspec.DecodeError, UnicodeError):
            return ""
    return arguments if is_json_object(arguments) else repair_arguments(arguments)


def _convert_text(text: str, schema: Schema) -> object:
    """Return the value of a text: the text itself if the schema allows one."""
    kinds = _list_kinds(schema)
    if not kinds or "string" in kinds:
        return text
    try:
        return cast("object", msgspec.json.decode(text.strip()))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text


def _find_problem(arguments: Mapping[str, object], schema: Schema) -> str:
    """Return why a tool would refuse the arguments; empty if it would not."""
    missing = [name for name in schema.get("required", ()) if arguments.get(name) is None]
    if missing:
        return f"the argument {missing[0]!r} is missing"
    properties: Schema = schema.get("properties", {})
    for name, value in arguments.items():
        if value is not None and name in properties and not _is_accepted(value, properties[name]):
            return f"the argument {name[:64]!r} has the wrong type"
    return ""


def _is_accepted(value: object, schema: Schema) -> bool:
    """Return whether a tool takes a value, also after conversion to the type of the schema."""
    kinds = _list_kinds(schema)
    return not kinds or any(_fits(value, kind) or _is_convertible(value, kind) for kind in kinds)


def _fits(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return kind in _KINDS and isinstance(value, _KINDS[kind])


def _is_convertible(value: object, kind: str) -> bool:
    """Return whether a value of another type has one reading as this type, as `tool/arguments.py` converts it."""
    if isinstance(value, float):
        return kind == "integer" and value.is_integer()
    if isinstance(value, dict | list):
        return kind in ("string", "array")
    if not isinstance(value, str):
        return False
    match kind:
        case "integer":
            return _INTEGER.fullmatch(value) is not None
        case "number":
            return _NUMBER.fullmatch(value) is not None
        case "boolean":
            return value.strip().lower() in ("true", "false")
        case "object":
            return is_json_object(value)
        case _:
            return kind in ("string", "array")


def _list_kinds(schema: object) -> list[str]:
    """Return the types that a schema allows; empty for any."""
    if not isinstance(schema, dict):
        return []
    fields = cast("Schema", schema)
    alternatives = fields.get("anyOf")
    if isinstance(alternatives, list):
        return [kind for one in cast("list[object]", alternatives) for kind in _list_kinds(one)]
    kind = fields.get("type")
    kinds = cast("list[object]", kind) if isinstance(kind, list) else [kind]
    return [one for one in kinds if isinstance(one, str)]
