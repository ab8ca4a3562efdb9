"""Tool calls of an answer: assembly from fragments, with unique ids and within limits, and repair of slips."""

import json
import os
import re
from collections.abc import Collection
from typing import cast

from msgspec.structs import replace

from yarrow.errors import Code, ProviderError
from yarrow.message import ToolCall
from yarrow.provider.backend_errors import Backend
from yarrow.provider.stream_framing import is_json_object

MAX_CALLS = 256
"""Maximum calls in one answer; one more is MALFORMED_TOOL_CALL."""
MAX_ARGUMENTS = 16 * 1024 * 1024
"""Maximum characters of arguments that arrive in fragments, in one answer; beyond it MALFORMED_TOOL_CALL."""


def new_call_id() -> str:
    """Return an id for a call without one from the backend."""
    return f"call_{os.urandom(12).hex()}"


class OpenCall:
    """A call that may still receive fragments of its arguments."""

    def __init__(self, call_id: str = "", name: str = "") -> None:
        self.id = call_id
        self.name = name
        self.fragments: list[str] = []

    @property
    def arguments(self) -> str:
        """The fragments so far, joined."""
        return "".join(self.fragments)

    def is_whole(self) -> bool:
        """Return whether the arguments so far are a JSON object."""
        return is_json_object(self.arguments)


class ToolCallAssembler:
    """Assembler for the calls of one answer."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._ids: set[str] = set()
        self._size = 0

    @property
    def count(self) -> int:
        """Number of calls returned."""
        return len(self._ids)

    def append(self, call: OpenCall, fragment: str) -> None:
        """Add a fragment of a call's arguments."""
        call.fragments.append(fragment)
        self._size += len(fragment)
        if self._size > MAX_ARGUMENTS:
            raise self.refuse(f"tool calls of more than {MAX_ARGUMENTS} characters")

    def close(self, call: OpenCall, *, natural: bool, opaque: str = "") -> ToolCall | None:
        """Return a call whose last fragment has arrived; None if it was truncated.

        `natural` means that the model continued, or ended normally. If it did not, a call whose arguments are not a
        JSON object was truncated; if it did, such a call is kept with its text.
        """
        arguments = call.arguments
        if not natural and not is_json_object(arguments):
            return None
        return self.make(call.id, call.name, arguments, opaque=opaque)

    def make(self, call_id: str, name: str, arguments: str, *, opaque: str = "") -> ToolCall:
        """Return a whole call; an id that is empty or taken is replaced, and blank arguments are an empty object.

        Raises MALFORMED_TOOL_CALL for one without a name, and for one too many.
        """
        if not name:
            raise self.refuse("a tool call without a name")
        if len(self._ids) == MAX_CALLS:
            raise self.refuse(f"more than {MAX_CALLS} tool calls in one answer")
        call_id = self.choose_id(call_id)
        self._ids.add(call_id)
        if is_json_object(arguments):
            return ToolCall(call_id, name, arguments, opaque=opaque)
        if not arguments.strip():
            return ToolCall(call_id, name, opaque=opaque)
        return ToolCall(call_id, name, invalid_arguments=arguments, opaque=opaque)

    def choose_id(self, call_id: str) -> str:
        """Return the id if no call of the answer has it, otherwise another one."""
        return call_id if call_id and call_id not in self._ids else new_call_id()

    def refuse(self, what: str) -> ProviderError:
        """Return MALFORMED_TOOL_CALL for something that the backend sent."""
        return ProviderError(Code.MALFORMED_TOOL_CALL, f"{self._backend.name} sent {what}", retryable=True)


MAX_VALUES = 4
"""Maximum JSON values compared in one text of arguments; a text with more is not repaired."""
_STOP_TOKENS = re.compile(r"(?:\s|<\|[^|<>]{1,40}\|>|</s>|<eos>|<end_of_turn>|</?tool_call>)+\Z")
_STRING_OR_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])', re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f]")
_MARKER = re.compile(r"<\|[^|<>]*\|>")
_PREFIX = re.compile(r"(?:functions?|tools?|default_api)[.:/]", re.IGNORECASE)
"""Namespaces of the formats that models were trained on: harmony, Kimi, Gemini."""


def repair_call(call: ToolCall, offered: Collection[str]) -> ToolCall:
    """Return a call with the name of the intended offered tool, and with arguments that are a JSON object.

    A part that cannot be repaired, or has two readings, stays unchanged.
    """
    if call.name not in offered:
        call = replace(call, name=find_offered_name(call.name, offered))
    if call.invalid_arguments and (arguments := repair_arguments(call.invalid_arguments)):
        call = replace(call, arguments=arguments, invalid_arguments="")
    return call


def repair_arguments(text: str) -> str:
    """Return the text of the one JSON object intended; empty if there is none, or more than one reading.

    Repairs control characters within strings, a comma before a closing bracket, an object in a JSON string, an empty
    object before or an equal one after it, and stop tokens after it. A truncated text has no whole object.
    """
    values = _parse_values(_make_strict(_STOP_TOKENS.sub("", text)))
    if len(values) == 1 and isinstance(inner := values[0][1], str):
        inner = inner.strip()
        return inner if is_json_object(inner) else ""
    objects = [(source, cast("object", value)) for source, value in values if isinstance(value, dict)]
    if not objects or len(objects) < len(values):
        return ""
    if len(objects) > 1 and not objects[0][1]:
        objects = objects[1:]
    source, first = objects[0]
    is_single = all(value == first for _, value in objects)
    return source if is_single and is_json_object(source) else ""


def _make_strict(text: str) -> str:
    """Return the text with control characters within strings escaped, and without commas before closing brackets."""

    def fix(match: re.Match[str]) -> str:
        found = match[0]
        return "" if found == "," else _CONTROL.sub(lambda control: json.dumps(control[0])[1:-1], found)

    return _STRING_OR_COMMA.sub(fix, text)


def _parse_values(text: str) -> list[tuple[str, object]]:
    """Return the JSON values in a text, each with its source; empty if the text contains anything else."""
    decoder, values, at = json.JSONDecoder(), list[tuple[str, object]](), 0
    try:
        while text[at:].strip():
            at = len(text) - len(text[at:].lstrip())
            value, end = decoder.raw_decode(text, at)
            values.append((text[at:end], cast("object", value)))
            at = end
            if len(values) > MAX_VALUES:
                return []
    except (ValueError, RecursionError):
        return []
    return values


def find_offered_name(name: str, offered: Collection[str]) -> str:
    """Return the one offered name intended, or the name unchanged."""
    # Text after a control marker belongs to the format: `read<|channel|>commentary`.
    plain = next((part for one in _MARKER.split(name) if (part := one.strip())), "")
    plain = _PREFIX.sub("", plain, count=1) if _PREFIX.match(plain) else plain
    if plain in offered:
        return plain
    alike = [one for one in offered if one.casefold() == plain.casefold()]
    return alike[0] if len(alike) == 1 else name
