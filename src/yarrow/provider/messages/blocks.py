"""Writes a repaired history in the blocks of the messages format."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, assert_never

import msgspec

from yarrow.message import Image, Message, Opaque, Role, Text, Thinking, ToolCall
from yarrow.provider.call_ids import make_id_mapper
from yarrow.provider.history import Target, repair_history
from yarrow.provider.messages.call_ids import derive_ids
from yarrow.provider.messages.signatures import decode_thinking, get_signature, is_thinking_block
from yarrow.provider.turns import Turn, group_turns

WireBlock = dict[str, Any]


def encode_conversation(
    history: Sequence[Message], target: Target, accepts_signature: Callable[[str], bool]
) -> list[WireBlock]:
    """Return the messages of the wire; `takes_seal` tells whether a signature was not refused so far."""
    legal_id = make_id_mapper(derive_ids)

    def message(turn: Turn) -> WireBlock:
        blocks = [block for one in turn.messages for block in _blocks(one, legal_id)]
        if turn.side == "assistant":
            blocks = _drop_trailing_thinking(
                [block for block in blocks if not is_thinking_block(block) or accepts_signature(get_signature(block))]
            )
        else:
            blocks.sort(key=lambda block: block["type"] != "tool_result")
        return {"role": turn.side, "content": blocks}

    return [message(turn) for turn in group_turns(repair_history(history, target))]


def _blocks(message: Message, legal_id: Callable[[str], str]) -> Iterator[WireBlock]:
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
                signed = decode_thinking(block)
                if signed is not None:
                    yield signed
            case _:
                assert_never(block)


def _result(message: Message, legal_id: Callable[[str], str]) -> Iterator[WireBlock]:
    """Give a result, and behind it the images that an error may not hold."""
    texts = [{"type": "text", "text": block.text} for block in message.content if isinstance(block, Text)]
    images = [_image(image) for image in message.images]
    result: WireBlock = {"type": "tool_result", "tool_use_id": legal_id(message.tool_call_id)}
    if not message.is_error:
        yield result | {"content": texts + images}
        return
    yield result | {"content": texts or [{"type": "text", "text": "(images follow the results)"}], "is_error": True}
    yield from images


def _image(image: Image) -> WireBlock:
    return {"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": image.data}}


def _drop_trailing_thinking(blocks: list[WireBlock]) -> list[WireBlock]:
    """Return the blocks without the thinking at their end, which led to nothing and would be refused."""
    end = len(blocks)
    while is_thinking_block(blocks[end - 1]):
        end -= 1
    return blocks[:end]
