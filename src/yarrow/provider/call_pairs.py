"""Pairing of tool calls with results, and call ids that a provider accepts."""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from yarrow.message import Block, Message, Role, Text, ToolCall

MISSING_RESULT = "No result: the call was interrupted, and its effects are unknown."
MAX_ID_CHARACTERS = 40
"""Maximum characters of a call id that every backend accepts; the backend's own ids may be longer."""


class _Slot(Struct, gc=False):
    """A call and, once found, its result."""

    call: ToolCall
    result: Message | None = None


def pair_tool_calls(messages: Sequence[Message], provider: str, model: str) -> Sequence[Message]:
    """Return the messages with calls and results paired.

    A result answers the last preceding call with its id that has no result yet, regardless of the messages between. A
    result without a call becomes text of the user; a call without a result gets an error result. Truncated answers are
    dropped with the results of their calls, which never ran.
    """
    if not any(message.role is Role.TOOL or message.tool_calls or message.incomplete for message in messages):
        return messages
    slots, orphans = _match_results(messages)
    ids = _CallIds()
    result: list[Message] = []
    for position, message in enumerate(messages):
        if message.incomplete:
            continue
        if position in slots:
            own = (message.provider, message.model) == (provider, model)
            new_ids = [ids.get_legal_id(slot.call.id, own=own) for slot in slots[position]]
            result.append(_rename_calls(message, iter(new_ids)))
            result.extend(map(_make_result, slots[position], new_ids))
        elif message.role is not Role.TOOL:
            result.append(message)
        elif position in orphans:
            result.append(_orphan_as_text(message))
    return result


def _match_results(messages: Sequence[Message]) -> tuple[dict[int, list[_Slot]], set[int]]:
    """Find the result of each call, by the position of its message, and the results without a call."""
    slots: dict[int, list[_Slot]] = {}
    orphans: set[int] = set()
    waiting: dict[str, list[_Slot]] = {}
    for position, message in enumerate(messages):
        if message.role is Role.TOOL:
            queue = waiting.get(message.tool_call_id)
            if queue:
                queue.pop(0).result = message
            else:
                orphans.add(position)
        elif calls := message.tool_calls:
            slots[position] = [_Slot(call) for call in calls]
            # A later call takes over the id: some servers restart numbering in each answer.
            for slot in slots[position]:
                waiting[slot.call.id] = []
            for slot in slots[position]:
                waiting[slot.call.id].append(slot)
    return slots, orphans


class _CallIds:
    """Generator of ids that are unique in the request; valid stored ids are reused.

    Ids depend only on earlier messages, so a longer history keeps the ids of a shorter one.
    """

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._count = 0

    def get_legal_id(self, stored: str, *, own: bool) -> str:
        """Return the stored id, or the next free one if it is empty, taken, or too long for a foreign backend."""
        chosen = stored
        if not stored.strip() or stored in self._given or (len(stored) > MAX_ID_CHARACTERS and not own):
            chosen = next(name for name in self._numbered() if name not in self._given)
        self._given.add(chosen)
        return chosen

    def _numbered(self) -> Iterator[str]:
        while True:
            self._count += 1
            yield f"call_{self._count}"


def _rename_calls(message: Message, new_ids: Iterator[str]) -> Message:
    content: list[Block] = []
    changed = False
    for block in message.content:
        if isinstance(block, ToolCall) and (new := next(new_ids)) != block.id:
            content.append(replace(block, id=new))
            changed = True
        else:
            content.append(block)
    return replace(message, content=tuple(content)) if changed else message


def _make_result(slot: _Slot, call_id: str) -> Message:
    call, result = slot.call, slot.result
    if result is None:
        return Message(
            id="",
            role=Role.TOOL,
            content=(Text(MISSING_RESULT),),
            timestamp="",
            tool_call_id=call_id,
            tool_name=call.name,
            is_error=True,
        )
    return result if result.tool_call_id == call_id else replace(result, tool_call_id=call_id)


def _orphan_as_text(result: Message) -> Message:
    """Return a result without a call as text of the user."""
    of = f" of {result.tool_name}" if result.tool_name.strip() else ""
    content = (Text(f"Result{of} for a call that is no longer shown:"), *result.content)
    return Message(id=result.id, role=Role.USER, content=content, timestamp=result.timestamp)


def make_id_mapper(candidates: Callable[[str], Iterator[str]]) -> Callable[[str], str]:
    """Return a function that maps the ids of one request, each to its first candidate that is still free.

    Conflicts are resolved in the order of the calls, so a longer history keeps the ids of a shorter one.
    """
    known: dict[str, str] = {}
    given: set[str] = set()

    def map_id(call_id: str) -> str:
        if call_id not in known:
            known[call_id] = next(chosen for chosen in candidates(call_id) if chosen not in given)
            given.add(known[call_id])
        return known[call_id]

    return map_id
