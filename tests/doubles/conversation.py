"""Messages of a conversation, for requests to a model."""

from itertools import count
from typing import Any

from yarrow.message import Block, Message, Role, Text, ToolCall

_numbers = count()


def said(role: Role, *blocks: Block | str, **more: Any) -> Message:
    """Return a message with an id of its own; a string becomes a block of text."""
    content = tuple(Text(block) if isinstance(block, str) else block for block in blocks)
    return Message(id=f"m{next(_numbers)}", role=role, content=content, timestamp="2026-01-01T00:00:00.000Z", **more)


def user(*blocks: Block | str, **more: Any) -> Message:
    return said(Role.USER, *blocks, **more)


def assistant(*blocks: Block | str, **more: Any) -> Message:
    """Return an answer of the model `m` of the provider `here`, unless others are given."""
    return said(Role.ASSISTANT, *blocks, **({"provider": "here", "model": "m"} | more))


def result(call_id: str, *blocks: Block | str, **more: Any) -> Message:
    return said(Role.TOOL, *blocks, tool_call_id=call_id, **more)


def calls(*ids: str) -> list[Block]:
    """Return calls of `bash` with the given ids."""
    return [ToolCall(call_id, "bash", '{"command":"ls"}') for call_id in ids]
