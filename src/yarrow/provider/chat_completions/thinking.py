"""The fields in which servers send thinking text, and how the field is remembered for the way back."""

from collections.abc import Iterable

from yarrow.message import Thinking
from yarrow.provider.chat_completions.chunk import Delta

_OPAQUE = {field: f'{{"field":"{field}"}}' for field in ("reasoning_content", "reasoning", "reasoning_text")}
_FIELDS = {opaque: field for field, opaque in _OPAQUE.items()}


def thinking_of(delta: Delta) -> tuple[str, str]:
    """Return the thinking text of a delta and its opaque data; a server that fills two fields says it twice."""
    if delta.reasoning_content:
        return delta.reasoning_content, _OPAQUE["reasoning_content"]
    if delta.reasoning:
        return delta.reasoning, _OPAQUE["reasoning"]
    if delta.reasoning_text:
        return delta.reasoning_text, _OPAQUE["reasoning_text"]
    return "", ""


def replayed(blocks: Iterable[Thinking]) -> dict[str, str]:
    """Return the fields, with their texts, that bring thinking back to where it came from."""
    fields: dict[str, str] = {}
    for block in blocks:
        field = _FIELDS.get(block.opaque)
        if field is not None:
            fields[field] = fields.get(field, "") + block.text
    return fields
