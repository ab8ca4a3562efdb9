"""History of a session as one provider may see it: calls paired with results and valid ids, grouped into turns."""

import re
from binascii import Error, a2b_base64
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from yarrow.message import Block, Image, Message, Opaque, Role, Text, Thinking, ToolCall
from yarrow.provider.call_ids import CallIds
from yarrow.provider.encoded_history_cache import HistoryCache, SegmentPlace
from yarrow.provider.request_body import Body
from yarrow.provider.stream_framing import is_json_object

MISSING_RESULT = "No result: the call was interrupted, and its effects are unknown."


class _Slot(Struct, gc=False):
    """A call and, once found, its result."""

    call: ToolCall
    result: Message | None = None


def pair_tool_calls(messages: Sequence[Message], owner: tuple[str, str], ids: CallIds) -> Sequence[Message]:
    """Return the messages with calls and results paired; `owner` is the provider and the model that they go to.

    A result answers the last preceding call with its id that has no result yet, regardless of the messages between. A
    result without a call becomes text of the user; a call without a result gets an error result. Truncated answers are
    dropped with the results of their calls, which never ran.
    """
    if not any(message.role is Role.TOOL or message.tool_calls or message.incomplete for message in messages):
        return messages
    slots, orphans = _match_results(messages)
    result: list[Message] = []
    for position, message in enumerate(messages):
        if message.incomplete:
            continue
        if position in slots:
            own = (message.provider, message.model) == owner
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


NO_OUTPUT = "(no output)"
HIDDEN_IMAGE = "(image omitted; this model cannot read images)"
HISTORY_START = "(The conversation before this point is not shown.)"
CONTINUE_PROMPT = "Continue."
MAX_DEPTH = 64
"""Maximum nesting depth of a call's arguments; some backends allow 100 for the whole request."""

_ALLOWED: dict[Role, tuple[type[Block], ...]] = {
    Role.USER: (Text, Image),
    Role.ASSISTANT: (Text, Thinking, ToolCall, Opaque),
    Role.TOOL: (Text, Image),
}
_ILLEGAL_NAME_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME = 64
_JSON_MARKS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]')
"""JSON brackets, and strings, in which brackets do not count."""
_MEDIA_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")


class Target(Struct, frozen=True):
    """Backend and model for which a history is repaired."""

    provider: str
    model: str
    takes_image: Callable[[Image], bool] = lambda _: True
    cache: HistoryCache = field(default_factory=HistoryCache)
    """Histories that the adapter has encoded for this and other targets."""


def repair_history(messages: Sequence[Message], target: Target, ids: CallIds | None = None) -> Sequence[Message]:
    """Apply the rules of every backend: complete messages, paired calls, no empty blocks, no foreign opaque data.

    `ids` has given the ids of the segments before these messages; without it they are the whole history.
    """
    sendable = [sent for message in messages if (sent := _keep_sendable(message, target)) is not None]
    paired = pair_tool_calls(sendable, (target.provider, target.model), ids or CallIds())
    return [_fill_empty_result(message) for message in paired]


class ChatHistoryEncoder:
    """Encoder of the history of a chat, which also follows the rules for chats: text results, and alternating turns."""

    def __init__(
        self, target: Target, encode: Callable[[Sequence[Message]], Iterable[Body]], ids: CallIds | None = None
    ) -> None:
        self._target = target
        self._encode_repaired = encode
        self._ids = ids or CallIds()

    def encode(self, segment: Sequence[Message], place: SegmentPlace) -> list[Body]:
        """Return the wire format of the messages that follow the previous segment."""
        repaired = repair_history(segment, self._target, self._ids)
        merged = list(_merge_neighbours(_move_images(repaired)))
        return list(self._encode_repaired(_add_ends(merged, place)))

    def copy(self) -> "ChatHistoryEncoder":
        """Return an encoder with the same state."""
        return ChatHistoryEncoder(self._target, self._encode_repaired, self._ids.copy())


def arrange_items(history: Sequence[Message], place: SegmentPlace, *, images_in_results: bool) -> Sequence[Message]:
    """Return a repaired segment for a format in which answers are separate items, and texts of the user are joined.

    Images of results follow the results, unless `images_in_results` is set.
    """
    messages = history if images_in_results else _move_images(history)
    return _add_ends(list(_merge_neighbours(messages, (Role.USER,))), place)


def _keep_sendable(message: Message, target: Target) -> Message | None:
    """Return the sendable part of a message considered alone; None if there is none."""
    # A truncated answer stays until its calls are paired, so that their results are dropped with it.
    if message.incomplete and message.role is not Role.ASSISTANT:
        return None
    if _is_plain(message):
        return message
    message = _drop_blanks(_hide_images(_drop_foreign_data(message, target), target.takes_image))
    return _fix_calls(message) if message.role is Role.TOOL or _has_content(message) else None


def _is_plain(message: Message) -> bool:
    """Return whether it holds only text and valid calls: most do, and a request may have thousands."""
    for block in message.content:
        if isinstance(block, Text):
            if not block.text or block.text.isspace():
                return False
        elif not isinstance(block, ToolCall) or message.role is not Role.ASSISTANT or not _is_plain_call(block):
            return False
    return message.content != ()


def _drop_foreign_data(message: Message, target: Target) -> Message:
    """Drop data that only another provider or model could read."""
    if message.role is not Role.ASSISTANT or (message.provider, message.model) == (target.provider, target.model):
        return message
    blocks = drop_thinking(message).content
    return _with_content(message, (replace(one, opaque="") if isinstance(one, ToolCall) else one for one in blocks))


def drop_thinking(message: Message) -> Message:
    """Return a message without thinking and data only its model can read; data of text and calls stays."""
    return _with_content(message, (block for block in message.content if not isinstance(block, Thinking | Opaque)))


def _hide_images(message: Message, takes_image: Callable[[Image], bool]) -> Message:
    """Replace an image that the backend rejects, or that is unreadable, with a note."""
    if not any(isinstance(block, Image) for block in message.content):
        return message
    hidden = (
        Text(HIDDEN_IMAGE) if isinstance(block, Image) and not (_is_image(block) and takes_image(block)) else block
        for block in message.content
    )
    return _with_content(message, hidden)


def _is_image(image: Image) -> bool:
    """Return whether it has a known type and valid base64: any other image would be refused in every later request."""
    try:
        return image.media_type in _MEDIA_TYPES and bool(a2b_base64(image.data, strict_mode=True))
    except (Error, ValueError):
        return False


def _drop_blanks(message: Message) -> Message:
    """Drop blank text, and blocks that the role must not contain."""
    allowed = _ALLOWED[message.role]
    kept = tuple(
        block
        for block in message.content
        if isinstance(block, allowed) and not (isinstance(block, Text) and not block.text.strip())
    )
    return message if len(kept) == len(message.content) else _with_content(message, kept)


def _has_content(message: Message) -> bool:
    return any(isinstance(block, Text | Image | ToolCall) for block in message.content)


def _fix_calls(message: Message) -> Message:
    """Make names and arguments of calls valid for backends; the invalid calls were answered with errors anyway."""
    if all(not isinstance(block, ToolCall) or _is_callable(block) for block in message.content):
        return message
    return _with_content(message, (_fix_call(b) if isinstance(b, ToolCall) else b for b in message.content))


def _is_plain_call(call: ToolCall) -> bool:
    return not call.opaque and _is_callable(call)


def _is_callable(call: ToolCall) -> bool:
    name = call.name
    return 0 < len(name) <= _MAX_NAME and not _ILLEGAL_NAME_CHARACTER.search(name) and _is_readable(call.arguments)


def _is_readable(arguments: str) -> bool:
    """Return whether they are a JSON object nested no deeper than backends accept."""
    return is_json_object(arguments) and (
        arguments.count("{") + arguments.count("[") <= MAX_DEPTH or _depth(arguments) <= MAX_DEPTH
    )


def _depth(json: str) -> int:
    """Return the nesting depth of JSON text."""
    deepest = depth = 0
    for mark in _JSON_MARKS.findall(json):
        if mark in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif mark in "}]":
            depth -= 1
    return deepest


def _fix_call(call: ToolCall) -> ToolCall:
    name = _ILLEGAL_NAME_CHARACTER.sub("_", call.name)[:_MAX_NAME] or "unknown"
    return replace(call, name=name, arguments=call.arguments if _is_readable(call.arguments) else "{}")


def _fill_empty_result(message: Message) -> Message:
    """Add a note that a tool had no output: backends refuse an empty result."""
    if message.role is not Role.TOOL or message.content:
        return message
    return _with_content(message, (Text(NO_OUTPUT),))


def _move_images(messages: Iterable[Message]) -> Iterator[Message]:
    """Move the images of results, which are text only, into a user message after all results of the turn."""
    moved: list[Block] = []
    for message in messages:
        if message.role is not Role.TOOL:
            if moved:
                yield _user_message(moved)
                moved = []
            yield message
        elif not message.images:
            yield message
        else:
            moved += (Text(f"Images in the result of {message.tool_name or message.tool_call_id}:"), *message.images)
            text = tuple(block for block in message.content if isinstance(block, Text))
            yield _with_content(message, (*text, Text("(its images follow the results)")))
    if moved:
        yield _user_message(moved)


def _merge_neighbours(
    messages: Iterable[Message], roles: Collection[Role] = (Role.USER, Role.ASSISTANT)
) -> Iterator[Message]:
    """Join neighbours of one role: some chat templates require user and assistant to alternate."""
    held: Message | None = None
    for message in messages:
        if held is not None and held.role is message.role and message.role in roles and not held.tool_calls:
            apart = (Text("\n\n"),) if message.role is Role.ASSISTANT and message.text else ()
            held = _with_content(held, (*held.content, *apart, *message.content))
            continue
        if held is not None:
            yield held
        held = message
    if held is not None:
        yield held


def _add_ends(messages: Sequence[Message], place: SegmentPlace) -> Sequence[Message]:
    """Ensure that the history starts with a user and ends with a message to answer."""
    is_started = not place.is_first or (messages and messages[0].role is Role.USER)
    is_answered = place.is_last and messages and messages[-1].role is Role.ASSISTANT
    begins = () if is_started else (_user_message([Text(HISTORY_START)]),)
    ends = (_user_message([Text(CONTINUE_PROMPT)]),) if is_answered else ()
    return (*begins, *messages, *ends)


def _user_message(blocks: Iterable[Block]) -> Message:
    return Message(id="", role=Role.USER, content=tuple(blocks), timestamp="")


def _with_content(message: Message, blocks: Iterable[Block]) -> Message:
    return replace(message, content=tuple(blocks))


class Turn(Struct, frozen=True):
    """Consecutive messages of one side; tool results belong to the user's side and come first."""

    side: Literal["user", "assistant"]
    messages: tuple[Message, ...]


def group_turns(history: Sequence[Message], place: SegmentPlace) -> list[Turn]:
    """Return the turns of a segment whose calls and results are paired.

    The first and the last turn of the history are the user's.
    """
    messages = _add_ends(history, place)
    return [
        Turn("assistant" if assistant else "user", tuple(turn))
        for assistant, turn in groupby(messages, key=lambda message: message.role is Role.ASSISTANT)
    ]
