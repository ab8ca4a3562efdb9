"""Which call each result answers."""

from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from yarrow.message import Message, Role, ToolCall


class CallPosition(Struct, frozen=True):
    """A call, and the index of the message that holds it."""

    index: int
    call: ToolCall


def match_results(messages: Sequence[Message]) -> dict[int, CallPosition]:
    """Return the call that each result answers, by the index of the result; one that answers none is left out.

    A result answers the last call before it that has its id and no answer yet; a later message takes over the ids of
    its calls, since some servers number the calls of each answer anew.
    """
    found: dict[int, CallPosition] = {}
    waiting: dict[str, deque[CallPosition]] = {}
    for index, message in enumerate(messages):
        if message.role is Role.TOOL:
            if calls := waiting.get(message.tool_call_id):
                found[index] = calls.popleft()
        elif message.role is Role.ASSISTANT:
            waiting.update((call.id, deque[CallPosition]()) for call in message.tool_calls)
            for call in message.tool_calls:
                waiting[call.id].append(CallPosition(index, call))
    return found
