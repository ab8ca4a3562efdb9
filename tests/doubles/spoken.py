"""An answer as a session would record it, from a decoder's events."""

from collections.abc import Sequence
from typing import Any

from doubles.conversation import assistant
from yarrow.message import Block, Message, Opaque, Text, Thinking
from yarrow.provider.base import CallPiece, OpaquePiece, ProviderEvent, TextPiece, ThinkingPiece


def record(events: Sequence[ProviderEvent], **fields: Any) -> Message:
    """Return the message; adjacent pieces of a kind are one block."""
    content: list[Block] = []
    for event in events:
        last = content[-1] if content else None
        match event:
            case TextPiece(words):
                content[-1:] = [Text(last.text + words)] if isinstance(last, Text) else [*content[-1:], Text(words)]
            case ThinkingPiece(words, opaque):
                joined = isinstance(last, Thinking)
                whole = Thinking(last.text + words, opaque or last.opaque) if joined else Thinking(words, opaque)
                content[-1:] = [whole] if joined else [*content[-1:], whole]
            case CallPiece(call):
                content.append(call)
            case OpaquePiece(data):
                content.append(Opaque(data))
            case _:
                pass
    return assistant(*content, **fields)
