"""Thinking and opaque fields of chat-completions messages."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from yarrow.message import Thinking
from yarrow.provider.chat_completions.chunk import CallDelta, ChatDelta

REASONING_DETAILS = "reasoning_details"
"""OpenRouter's field, which also contains the thinking text."""
MESSAGE_FIELDS = (REASONING_DETAILS, "thinking_blocks", "extra_content", "provider_specific_fields")
"""Opaque fields of messages: OpenRouter's, LiteLLM's for Claude, Gemini's own endpoint's, LiteLLM's for others."""
CALL_FIELDS = ("extra_content", "provider_specific_fields")
"""Opaque fields of calls, from Gemini's own endpoint and LiteLLM; they contain `thought_signature`."""
_STREAMED_MEMBERS = ("text", "summary", "data")
"""Members of a detail that arrive in pieces; of any other the last non-null value is used."""


class OpaqueFields:
    """Opaque fields of one message while it is streamed."""

    def __init__(self) -> None:
        self._details: dict[object, dict[str, Any]] = {}
        self._blocks: list[dict[str, Any]] = []
        self._others: dict[str, dict[str, Any]] = {}

    def add(self, delta: ChatDelta) -> None:
        """Add the fields of a delta."""
        for fragment in delta.reasoning_details or ():
            self._add_detail(fragment)
        for fragment in delta.thinking_blocks or ():
            self._add_block(fragment)
        for name, value in (
            ("extra_content", delta.extra_content),
            ("provider_specific_fields", delta.provider_specific_fields),
        ):
            if value:
                self._others[name] = self._others.get(name, {}) | value

    def encode(self) -> str:
        """Return the fields as JSON text; empty if there were none."""
        fields: dict[str, Any] = {**self._others}
        if self._details:
            fields[REASONING_DETAILS] = list(self._details.values())
        if self._blocks:
            fields["thinking_blocks"] = self._blocks
        return encode_fields(fields)

    def _add_detail(self, fragment: dict[str, Any]) -> None:
        """Join the fragments with the same index and type into one detail."""
        known = self._details.setdefault(str((fragment.get("index"), fragment.get("type"))), {})
        for name, value in fragment.items():
            if name in _STREAMED_MEMBERS and isinstance(value, str) and isinstance(known.get(name), str):
                known[name] += value
            elif value is not None or name not in known:
                known[name] = value

    def _add_block(self, fragment: dict[str, Any]) -> None:
        """Join the fragments of a thinking block; a signature ends the block."""
        last = self._blocks[-1] if self._blocks else {}
        if fragment.get("type") != "thinking" or last.get("type") != "thinking" or last.get("signature"):
            self._blocks.append(dict(fragment))
            return
        last["thinking"] = f"{last.get('thinking') or ''}{fragment.get('thinking') or ''}"
        last |= {name: value for name, value in fragment.items() if name != "thinking" and value is not None}


def get_call_fields(delta: CallDelta) -> dict[str, Any]:
    """Return the opaque fields in a fragment of a call."""
    fields = {"extra_content": delta.extra_content, "provider_specific_fields": delta.provider_specific_fields}
    return {name: value for name, value in fields.items() if value}


def encode_fields(fields: Mapping[str, Any]) -> str:
    """Return fields as opaque text; empty if there are none."""
    return msgspec.json.encode(fields).decode() if fields else ""


def decode_fields(opaque: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the named fields in an opaque text; empty if it contains something else."""
    if not opaque:
        return {}
    try:
        value: object = msgspec.json.decode(opaque)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    held = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return {name: held[name] for name in names if isinstance(held.get(name), list | dict) and held[name]}


_OPAQUE_BY_FIELD = {field: f'{{"field":"{field}"}}' for field in ("reasoning_content", "reasoning", "reasoning_text")}
_FIELD_BY_OPAQUE = {opaque: field for field, opaque in _OPAQUE_BY_FIELD.items()}


def get_thinking(delta: ChatDelta) -> tuple[str, str]:
    """Return the thinking text of a delta and its opaque data; a server that fills two fields repeats the same text."""
    if delta.reasoning_content:
        return delta.reasoning_content, _OPAQUE_BY_FIELD["reasoning_content"]
    if delta.reasoning:
        return delta.reasoning, _OPAQUE_BY_FIELD["reasoning"]
    if delta.reasoning_text:
        return delta.reasoning_text, _OPAQUE_BY_FIELD["reasoning_text"]
    return "", ""


def replay_thinking(blocks: Iterable[Thinking]) -> dict[str, str]:
    """Return the fields, with their texts, that send thinking back as it arrived."""
    fields: dict[str, str] = {}
    for block in blocks:
        field = _FIELD_BY_OPAQUE.get(block.opaque)
        if field is not None:
            fields[field] = fields.get(field, "") + block.text
    return fields
