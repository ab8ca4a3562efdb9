"""Calls in JSON, as models write them: an object with a name and arguments, or a list of such objects."""

from typing import Literal

import msgspec
from msgspec import Raw, Struct

from yarrow.provider.text_calls.call_scanner import UNREADABLE_CALL, NotACallError, WrittenCall
from yarrow.provider.tool_calls import repair_arguments

CALL_KEYS = ("name", "arguments", "parameters", "type", "id", "function", "tool_name", "tool_call_id")
"""Keys of a call's object."""


class _WrittenFunction(Struct, frozen=True, forbid_unknown_fields=True):
    """The inner object of the notation that some models know from an API."""

    name: str
    arguments: Raw = Raw(b"")
    parameters: Raw = Raw(b"")


class _WrittenObject(Struct, frozen=True, forbid_unknown_fields=True):
    """The object of a call."""

    name: str = ""
    arguments: Raw = Raw(b"")
    parameters: Raw = Raw(b"")
    type: Literal["function"] = "function"
    id: str | None = None
    function: _WrittenFunction | None = None
    tool_name: str = ""
    tool_call_id: str | None = None


_decode = msgspec.json.Decoder(_WrittenObject).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode


def parse_tagged_json(text: str) -> list[WrittenCall]:
    """Return the calls in the JSON between tags; a broken one is unreadable."""
    if not text.startswith("["):
        return [parse_object(text, needs_arguments=False) or UNREADABLE_CALL]
    try:
        items = [bytes(item).decode() for item in _decode_list(text)]
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        items = []
    return [parse_object(item, needs_arguments=False) or UNREADABLE_CALL for item in items] or [UNREADABLE_CALL]


def parse_bare_json(text: str) -> WrittenCall:
    """Return the call in an object without a mark, which must have arguments. Raises NotACallError for any other."""
    call = parse_object(text, needs_arguments=True)
    if call is None:
        raise NotACallError
    return call


def parse_object(text: str, *, needs_arguments: bool) -> WrittenCall | None:
    """Return the call in a JSON object, whose slips are repaired; None if it is no call."""
    written = _decode_object(text) or _decode_object(repair_arguments(text))
    if written is None:
        return None
    named = [name for name in (written.name, written.tool_name) if name]
    function = written.function
    if function is None:
        if len(named) != 1:
            return None
        function = _WrittenFunction(named[0], written.arguments, written.parameters)
    elif named:
        return None
    given = [bytes(one).decode() for one in (function.arguments, function.parameters) if bytes(one)]
    if len(given) > 1 or (not given and needs_arguments):
        return None
    return WrittenCall(function.name, given[0] if given else "{}")


def _decode_object(text: str) -> _WrittenObject | None:
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
