"""The fields in which servers send thinking text, and how the field is remembered for the way back."""

from collections.abc import Iterable

from yarrow.message import Thinking
from yarrow.provider.chat_completions.chunk import ChatDelta

_OPAQUE_BY_FIELD = {field: f'{{"field":"{field}"}}' for field in ("reasoning_content", "reasoning", "reasoning_text")}
_FIELD_BY_OPAQUE = {opaque: field for field, opaque in _OPAQUE_BY_FIELD.items()}


def get_thinking(delta: ChatDelta) -> tuple[str, str]:
    """Return the thinking text of a delta and its opaque data; a server that fills two fields says it twice."""
    if delta.reasoning_content:
        return delta.reasoning_content, _OPAQUE_BY_FIELD["reasoning_content"]
    if delta.reasoning:
        return delta.reasoning, _OPAQUE_BY_FIELD["reasoning"]
    if delta.reasoning_text:
        return delta.reasoning_text, _OPAQUE_BY_FIELD["reasoning_text"]
    return "", ""


def replay_thinking(blocks: Iterable[Thinking]) -> dict[str, str]:
    """Return the fields, with their texts, that bring thinking back to where it came from."""
    fields: dict[str, str] = {}
    for block in blocks:
        field = _FIELD_BY_OPAQUE.get(block.opaque)
        if field is not None:
            fields[field] = fields.get(field, "") + block.text
    return fields
