"""Assembly of an answer's tool calls: from fragments or whole, with unique ids and within limits."""

import os

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
