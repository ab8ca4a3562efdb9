"""Data of output items that goes back to the server with them: encrypted reasoning, ids and phases."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from yarrow.provider.model_list import parse_rows
from yarrow.provider.request_body import Body
from yarrow.provider.stream_framing import decode_json_object

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ID_PREFIXES = {"reasoning": "rs", "message": "msg", "function_call": "fc"}
"""Beginning of the ids that the server gives, by type of item."""
_PHASES = ("commentary", "final_answer")
_PART_TYPES = {"summary": "summary_text", "content": "reasoning_text"}


def encode_reasoning(item: Mapping[str, Any]) -> str:
    """Return the opaque data of a reasoning item; empty if it contains nothing that the server can continue from."""
    fields = {name: item[name] for name in ("type", "id", "summary", "content", "encrypted_content") if item.get(name)}
    return _text(fields) if read_reasoning(fields) is not None else ""


def encode_message_mark(item_id: str, phase: str) -> str:
    """Return the opaque data that follows the text of a message item."""
    return _text({"type": "message", "id": item_id} | ({"phase": phase} if phase else {}))


def encode_call_mark(item_id: str) -> str:
    """Return the opaque data of a call; empty without an id of its item."""
    return _text({"id": item_id}) if item_id else ""


def decode_mark(data: str) -> Body | None:
    """Return the item that opaque data describes: reasoning, or a message without its text; None if it is neither."""
    fields = decode_json_object(data)
    match fields.get("type"):
        case "reasoning":
            return read_reasoning(fields)
        case "message":
            return {"type": "message", **_read_id(fields, "message"), **_read_phase(fields)}
        case _:
            return None


def decode_call_mark(data: str) -> Body:
    """Return the field with the id of a call's item; empty if there is no valid one."""
    return _read_id(decode_json_object(data), "function_call") if data else {}


def read_reasoning(fields: Mapping[str, Any]) -> Body | None:
    """Return a reasoning item as the server accepts it; None if it has neither encrypted nor readable content."""
    item: Body = {"type": "reasoning", **_read_id(fields, "reasoning"), "summary": _read_parts(fields, "summary")}
    if content := _read_parts(fields, "content"):
        item["content"] = content
    encrypted = fields.get("encrypted_content")
    if isinstance(encrypted, str) and encrypted.strip():
        item["encrypted_content"] = encrypted
    return item if item.keys() & {"content", "encrypted_content"} else None


LOST: Body = {"type": "lost"}
"""Place of an item that is not sent."""


def pair_items(items: Iterable[Body], given: set[str], accepts: Callable[[str], bool]) -> Iterator[Body]:
    """Yield the items of an answer that the server accepts together; those of messages still have only their text.

    Reasoning stays only directly before the message or call that it led to, and only whole: `accepts` returns whether
    an encrypted content has not been refused so far. Another item keeps its id only if its reasoning stays, because the
    server would look for it elsewhere. `given` are the ids of earlier items; the new ones are added.
    """
    held: list[Body] = []
    has_reasoning = False
    for item in items:
        if item["type"] == "reasoning":
            held.append(item)
            continue
        if held:
            has_reasoning = item != LOST and _is_sendable(held, given, accepts)
            if has_reasoning:
                given.update(one["id"] for one in held if "id" in one)
                yield from held
                has_reasoning = all("id" in one for one in held)
            held = []
        if item != LOST:
            if not has_reasoning or item.get("id") in given:
                item.pop("id", None)
            elif "id" in item:
                given.add(item["id"])
            yield item


def _is_sendable(reasoning: Sequence[Body], given: set[str], accepts: Callable[[str], bool]) -> bool:
    ids = [one["id"] for one in reasoning if "id" in one]
    is_new = given.isdisjoint(ids) and len(set(ids)) == len(ids)
    return is_new and all(accepts(one.get("encrypted_content", "")) for one in reasoning)


def encode_message(item: Body, *, is_vendor: bool) -> Body:
    """Return a message with its text in wire format.

    The vendor documents only a short form for one without an id, which llama.cpp in turn does not know.
    """
    phase = {"phase": item["phase"]} if "phase" in item else {}
    if is_vendor and "id" not in item:
        return {"role": "assistant", "content": item["text"], **phase}
    content: list[Body] = [{"type": "output_text", "text": item["text"], "annotations": []}]
    item_id = {"id": item["id"]} if "id" in item else {}
    return {"type": "message", **item_id, "role": "assistant", "status": "completed", "content": content, **phase}


def _read_id(fields: Mapping[str, Any], kind: str) -> Body:
    found = fields.get("id")
    is_valid = isinstance(found, str) and _ID.fullmatch(found) and found.startswith(f"{_ID_PREFIXES[kind]}_")
    return {"id": found} if is_valid else {}


def _read_phase(fields: Mapping[str, Any]) -> Body:
    return {"phase": fields["phase"]} if fields.get("phase") in _PHASES else {}


def _read_parts(fields: Mapping[str, Any], name: str) -> list[Body]:
    """Return the parts with text of a list in a reasoning item."""
    kind = _PART_TYPES[name]
    return [
        {"type": kind, "text": one["text"]}
        for one in parse_rows(fields.get(name))
        if one.get("type") == kind and isinstance(one.get("text"), str)
    ]


def _text(value: Body) -> str:
    return msgspec.json.encode(value).decode()
