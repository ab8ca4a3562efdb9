"""Reads the tool calls of an answer, which come whole, and gives an id to each that has none."""

import msgspec

from yarrow.errors import Code, ProviderError
from yarrow.message import ToolCall
from yarrow.provider.backend_errors import Backend
from yarrow.provider.chat_completions.tool_calls import MAX_CALLS, new_call_id
from yarrow.provider.json_object import is_json_object
from yarrow.provider.ollama.chunk import OllamaCall, OllamaFunction

_EMPTY_ARGUMENTS = ("", "null")


class OllamaCallReader:
    """The calls of one answer; more than MAX_CALLS, or one without a name, is MALFORMED_TOOL_CALL."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._ids: set[str] = set()

    @property
    def count(self) -> int:
        """How many were read."""
        return len(self._ids)

    def read(self, call: OllamaCall) -> ToolCall:
        """Return the call, with an id that no other call of the answer has."""
        function = call.function or OllamaFunction()
        if not function.name:
            raise self._refuse("a tool call without a name")
        if self.count == MAX_CALLS:
            raise self._refuse(f"more than {MAX_CALLS} tool calls in one answer")
        call_id = call.id if call.id and call.id not in self._ids else new_call_id()
        self._ids.add(call_id)
        arguments = _unquote(bytes(function.arguments).decode("utf-8", "replace"))
        if arguments.strip() in _EMPTY_ARGUMENTS:
            return ToolCall(call_id, function.name)
        if is_json_object(arguments):
            return ToolCall(call_id, function.name, arguments)
        return ToolCall(call_id, function.name, invalid_arguments=arguments)

    def _refuse(self, what: str) -> ProviderError:
        return ProviderError(Code.MALFORMED_TOOL_CALL, f"{self._backend.name} sent {what}", retryable=True)


def _unquote(arguments: str) -> str:
    """Return arguments as an object; what stands between a backend and us may have written them as a text."""
    if not arguments.startswith('"'):
        return arguments
    try:
        text = msgspec.json.decode(arguments, type=str)
    except msgspec.DecodeError:
        return arguments
    return text if is_json_object(text) else arguments
