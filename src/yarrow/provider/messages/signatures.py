"""Signatures of thinking, stored so that the thinking is sent back as it arrived."""

from typing import Any, cast

import msgspec

from yarrow.message import Opaque, Thinking

SEPARATOR = '{"type":"apart"}'
"""Opaque data between two separately signed blocks of thinking; it is never sent."""


def encode_signature(signature: str) -> str:
    """Return the opaque data of thinking; empty without a signature."""
    return _text({"signature": signature}) if signature else ""


def encode_hidden_thinking(signature: str) -> str:
    """Return the opaque data of a block of thinking whose text the backend withholds."""
    return _text({"type": "thinking", "thinking": "", "signature": signature})


def encode_redacted_thinking(data: str) -> str:
    """Return the opaque data of a block of encrypted thinking."""
    return _text({"type": "redacted_thinking", "data": data})


def decode_thinking(block: Thinking | Opaque) -> dict[str, Any] | None:
    """Return the block as the backend sent it; None for an unsigned one, which the backend would refuse."""
    match block:
        case Thinking(text, opaque):
            signature = _string(_fields(opaque), "signature")
            return {"type": "thinking", "thinking": text, "signature": signature} if signature.strip() else None
        case Opaque(data):
            fields = _fields(data)
            kind, signature, encrypted = (_string(fields, name) for name in ("type", "signature", "data"))
            if kind == "thinking" and signature.strip():
                return {"type": kind, "thinking": _string(fields, "thinking"), "signature": signature}
            return {"type": kind, "data": encrypted} if kind == "redacted_thinking" and encrypted.strip() else None


def is_thinking_block(block: dict[str, Any]) -> bool:
    """Return whether a block in wire format is thinking, as text or encrypted."""
    return block["type"] in ("thinking", "redacted_thinking")


def get_signature(block: dict[str, Any]) -> str:
    """Return the identity of a block of thinking: its signature or its encrypted data."""
    return str(block.get("signature") or block.get("data"))


def _fields(opaque: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(opaque)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _string(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _text(value: dict[str, str]) -> str:
    return msgspec.json.encode(value).decode()
