"""Assembly of tool calls from the fragments of a stream."""

import os
from typing import Any

import msgspec

from yarrow.errors import Code, ProviderError
from yarrow.message import ToolCall
from yarrow.provider.backend_errors import Backend
from yarrow.provider.chat_completions.chunk import CallDelta
from yarrow.provider.chat_completions.opaque_fields import encode_fields, get_call_fields
from yarrow.provider.stream_framing import is_json_object

MAX_CALLS = 256
"""Maximum calls in one answer; one more is MALFORMED_TOOL_CALL."""
MAX_ARGUMENTS = 16 * 1024 * 1024
"""Maximum characters of arguments in one answer's calls; beyond it MALFORMED_TOOL_CALL."""


class _OpenCall:
    """A call that may still receive fragments."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.fragments: list[str] = []
        self.fields: dict[str, Any] = {}
        """Opaque fields that a gateway attached."""

    @property
    def arguments(self) -> str:
        return "".join(self.fragments)

    def is_whole(self) -> bool:
        return is_json_object(self.arguments)


class ToolCallAssembler:
    """Assembler for the calls of one answer."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._calls: list[_OpenCall] = []
        self._by_index: dict[int, _OpenCall] = {}
        self._size = 0

    def add(self, delta: CallDelta) -> None:
        """Add one fragment."""
        function = delta.function
        name = (function.name or "") if function else ""
        arguments = _arguments_text(function.arguments) if function else ""
        call_id = str(delta.id) if delta.id is not None else ""
        call = self._find(delta.index, call_id)
        # Joining the fragments is expensive, so compare only text that could be an object of its own.
        starts_object = arguments.lstrip()[:1] == "{"
        if (
            call is None
            or _is_other_call(call, call_id)
            or (starts_object and name and not call_id and call.is_whole())
        ):
            call = self._open(delta.index)
        elif starts_object and call_id == call.id and arguments == call.arguments and call.is_whole():
            return  # a repetition of the whole call
        call.id = call_id or call.id
        call.name = name or call.name
        call.fields |= get_call_fields(delta)
        if arguments:
            call.fragments.append(arguments)
            self._size += len(arguments)
        if self._size > MAX_ARGUMENTS:
            raise self._refuse(f"tool calls of more than {MAX_ARGUMENTS} characters")

    def finish(self, *, natural: bool) -> list[ToolCall]:
        """Return the calls in the order of their indexes, each with a unique id.

        `natural` means that the model ended normally. If it did not, a call whose arguments are not a JSON object was
        truncated and is dropped; if it did, such a call is kept with its text.
        """
        finished: list[ToolCall] = []
        taken: set[str] = set()
        for call in sorted(self._calls, key=lambda call: call.index):
            arguments = call.arguments
            blank = not arguments.strip()
            whole = not blank and is_json_object(arguments)
            if not call.name and blank:
                continue
            # A call without arguments may be truncated unless another call came after it.
            if not (natural or whole or (blank and call is not self._calls[-1])):
                continue
            if not call.name:
                raise self._refuse("a tool call without a name")
            call_id = call.id if call.id and call.id not in taken else new_call_id()
            taken.add(call_id)
            opaque = encode_fields(call.fields)
            if whole or blank:
                finished.append(ToolCall(call_id, call.name, arguments if whole else "{}", opaque=opaque))
            else:
                finished.append(ToolCall(call_id, call.name, invalid_arguments=arguments, opaque=opaque))
        return finished

    def _find(self, index: int | None, call_id: str) -> _OpenCall | None:
        if index is not None:
            return self._by_index.get(index)
        if call_id:
            return next((call for call in self._calls if call.id == call_id), None) or self._find_without_id()
        return self._calls[-1] if self._calls else None

    def _find_without_id(self) -> _OpenCall | None:
        """Return the last call if its id may still arrive."""
        last = self._calls[-1] if self._calls else None
        return last if last is not None and not last.id else None

    def _open(self, index: int | None) -> _OpenCall:
        if len(self._calls) == MAX_CALLS:
            raise self._refuse(f"more than {MAX_CALLS} tool calls in one answer")
        position = index if index is not None else len(self._calls)
        call = _OpenCall(position)
        self._calls.append(call)
        self._by_index[position] = call
        return call

    def _refuse(self, what: str) -> ProviderError:
        return ProviderError(Code.MALFORMED_TOOL_CALL, f"{self._backend.name} sent {what}", retryable=True)


def new_call_id() -> str:
    """Return an id for a call without one from the backend."""
    return f"call_{os.urandom(12).hex()}"


def _is_other_call(call: _OpenCall, call_id: str) -> bool:
    """Return whether a fragment belongs to another call: some proxies use the same index for all calls."""
    return bool(call_id and call.id) and call_id != call.id


def _arguments_text(arguments: str | dict[str, Any] | None) -> str:
    if isinstance(arguments, dict):
        return msgspec.json.encode(arguments).decode()
    return arguments or ""
