"""Writes a repaired history in the blocks of the messages format."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, assert_never

import msgspec

from yarrow.message import Image, Message, Opaque, Role, Text, Thinking, ToolCall
from yarrow.provider.call_ids import legal_ids
from yarrow.provider.history import Target, repaired
from yarrow.provider.messages.ids import ids_like
from yarrow.provider.messages.signed import is_thought, replayed, seal
from yarrow.provider.turns import Turn, turns

Wire = dict[str, Any]


def conversation(history: Sequence[Message], target: Target, takes_seal: Callable[[str], bool]) -> list[Wire]:
    """Return the messages of the wire; `takes_seal` tells whether a signature was not refused so far."""
    legal_id = legal_ids(ids_like)

    def message(turn: Turn) -> Wire:
        blocks = [block for one in turn.messages for block in _blocks(one, legal_id)]
        if turn.side == "assistant":
            blocks = _thoughts_kept([block for block in blocks if not is_thought(block) or takes_seal(seal(block))])
        else:
            blocks.sort(key=lambda block: block["type"] != "tool_result")
        return {"role": turn.side, "content": blocks}

    return [message(turn) for turn in turns(repaired(history, target))]


def _blocks(message: Message, legal_id: Callable[[str], str]) -> Iterator[Wire]:
    if message.role is Role.TOOL:
        yield from _result(message, legal_id)
        return
    for block in message.content:
        match block:
            case Text(text):
                yield {"type": "text", "text": text}
            case Image():
                yield _image(block)
            case ToolCall(call_id, name, arguments):
                # As raw text, because numbers keep their digits and caches see the same bytes.
                yield {"type": "tool_use", "id": legal_id(call_id), "name": name, "input": msgspec.Raw(arguments)}
            case Thinking() | Opaque():
                signed = replayed(block)
                if signed is not None:
                    yield signed
            case _:
                assert_never(block)


def _result(message: Message, legal_id: Callable[[str], str]) -> Iterator[Wire]:
    """Give a result, and behind it the images that an error may not hold."""
    texts = [{"type": "text", "text": block.text} for block in message.content if isinstance(block, Text)]
    images = [_image(image) for image in message.images]
    result: Wire = {"type": "tool_result", "tool_use_id": legal_id(message.tool_call_id)}
    if not message.is_error:
        yield result | {"content": texts + images}
        return
    yield result | {"content": texts or [{"type": "text", "text": "(images follow the results)"}], "is_error": True}
    yield from images


def _image(image: Image) -> Wire:
    return {"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": image.data}}


def _thoughts_kept(blocks: list[Wire]) -> list[Wire]:
    """Return the blocks without the thinking at their end, which led to nothing and would be refused."""
    end = len(blocks)
    while is_thought(blocks[end - 1]):
        end -= 1
    return blocks[:end]
