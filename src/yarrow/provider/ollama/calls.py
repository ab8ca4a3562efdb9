"""Reads the tool calls of an answer, which come whole, and gives an id to each that has none."""

import msgspec

from yarrow.errors import Code, ProviderError
from yarrow.message import ToolCall
from yarrow.provider.chat_completions.calls import MAX_CALLS, new_id
from yarrow.provider.failures import Speaker
from yarrow.provider.json_object import is_json_object
from yarrow.provider.ollama.line import Call, Function

_NONE = ("", "null")


class Calls:
    """The calls of one answer; more than MAX_CALLS, or one without a name, is MALFORMED_TOOL_CALL."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self._ids: set[str] = set()

    @property
    def count(self) -> int:
        """How many were read."""
        return len(self._ids)

    def read(self, call: Call) -> ToolCall:
        """Return the call, with an id that no other call of the answer has."""
        function = call.function or Function()
        if not function.name:
            raise self._refuse("a tool call without a name")
        if self.count == MAX_CALLS:
            raise self._refuse(f"more than {MAX_CALLS} tool calls in one answer")
        call_id = call.id if call.id and call.id not in self._ids else new_id()
        self._ids.add(call_id)
        arguments = _unquoted(bytes(function.arguments).decode("utf-8", "replace"))
        if arguments.strip() in _NONE:
            return ToolCall(call_id, function.name)
        if is_json_object(arguments):
            return ToolCall(call_id, function.name, arguments)
        return ToolCall(call_id, function.name, invalid_arguments=arguments)

    def _refuse(self, what: str) -> ProviderError:
        return ProviderError(Code.MALFORMED_TOOL_CALL, f"{self._speaker.name} sent {what}", retryable=True)


def _unquoted(arguments: str) -> str:
    """Return arguments as an object; what stands between a backend and us may have written them as a text."""
    if not arguments.startswith('"'):
        return arguments
    try:
        text = msgspec.json.decode(arguments, type=str)
    except msgspec.DecodeError:
        return arguments
    return text if is_json_object(text) else arguments
