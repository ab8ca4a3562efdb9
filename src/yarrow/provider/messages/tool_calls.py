"""Puts the tool calls of one answer together; the last is held until it is known that it was not cut."""

import msgspec

from yarrow.errors import Code, ProviderError
from yarrow.message import ToolCall
from yarrow.provider.backend_errors import Backend
from yarrow.provider.chat_completions.tool_calls import MAX_ARGUMENTS, MAX_CALLS, new_call_id
from yarrow.provider.json_object import is_json_object


class MessagesCallAssembler:
    """The calls of one answer, one after the other."""

    def __init__(self, backend: Backend) -> None:
        self.count = 0
        """Calls that were given."""
        self._backend = backend
        self._ids: set[str] = set()
        self._size = 0
        self._open = False
        self._id = ""
        self._name = ""
        self._fragments: list[str] = []

    def begin(self, call_id: str, name: str, arguments: msgspec.Raw) -> None:
        """Begin a call; its arguments come in fragments, or with some servers at once."""
        self._open = True
        self._id, self._name = call_id, name
        whole = bytes(arguments).decode()
        self._fragments = [] if whole in ("", "{}", "null") else [whole]

    def add(self, fragment: str) -> None:
        """Take a fragment of the arguments of the call that began last."""
        self._fragments.append(fragment)
        self._size += len(fragment)
        if self._size > MAX_ARGUMENTS:
            raise self._refuse(f"tool calls of more than {MAX_ARGUMENTS} characters")

    def finish(self, *, natural: bool) -> ToolCall | None:
        """Return the call that began last, None if there is none.

        `natural` says that the model went on, or ended where it wanted to. If it did not, a call whose arguments are
        no JSON object was cut off, and is left out; if it did, such a call is kept with the text it has.
        """
        if not self._open:
            return None
        self._open = False
        arguments = "".join(self._fragments)
        blank = not arguments.strip()
        whole = not blank and is_json_object(arguments)
        if not (natural or whole):
            return None
        if not self._name:
            raise self._refuse("a tool call without a name")
        if self.count == MAX_CALLS:
            raise self._refuse(f"more than {MAX_CALLS} tool calls in one answer")
        self.count += 1
        call_id = self._id if self._id and self._id not in self._ids else new_call_id()
        self._ids.add(call_id)
        if whole or blank:
            return ToolCall(call_id, self._name, arguments if whole else "{}")
        return ToolCall(call_id, self._name, invalid_arguments=arguments)

    def _refuse(self, what: str) -> ProviderError:
        return ProviderError(Code.MALFORMED_TOOL_CALL, f"{self._backend.name} sent {what}", retryable=True)
