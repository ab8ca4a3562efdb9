"""The slow way to read a line: what strict decoding refuses and is no reason to lose a message."""

from typing import Any, cast

import msgspec
from msgspec import Struct

from yarrow.message import Message
from yarrow.session.record import (
    Change,
    Compaction,
    Header,
    PermissionAnswered,
    PermissionAsked,
    Queued,
    Record,
    Undelivered,
)

_RECORD_TYPES: dict[str, type[Record]] = {
    "header": Header,
    "message": Message,
    "change": Change,
    "compaction": Compaction,
    "queued": Queued,
    "undelivered": Undelivered,
    "permissionAsked": PermissionAsked,
    "permissionAnswered": PermissionAnswered,
}


class UnknownRecord(Struct, frozen=True):
    """A whole line that this version cannot interpret: it has no meaning here and is carried along as it is."""

    kind: str


def salvage_record(line: bytes) -> Record | UnknownRecord:
    """Return the record on a line, forgiving what does no harm.

    Lone surrogates and bytes that are no UTF-8 become U+FFFD, raw control characters in strings are text, and an
    optional field with a value of a later version counts as absent. A line whose kind, role, block type or other
    required field is of a later version is `UnknownRecord`. Raises `ValueError` when it is no JSON object with a kind.
    """
    try:
        return _parse_record(line)
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def encode_replacing_surrogates(record: Record) -> bytes:
    """Return a record that holds lone surrogates as one JSON object, with U+FFFD in their place."""
    import json  # text is cleaned where it enters the program; this is the net below

    value = msgspec.to_builtins(record)
    return replace_surrogates(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


def replace_surrogates(text: str) -> str:
    """Return the text with every lone surrogate replaced by U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _parse_record(line: bytes) -> Record | UnknownRecord:
    import json  # a healthy session never needs it

    try:
        value: object = json.loads(line.decode(errors="replace"), strict=False)
    except ValueError:
        raise ValueError("is not whole JSON") from None
    if not isinstance(value, dict):
        raise ValueError("is not a JSON object")  # noqa: TRY004 (the caller reports one kind of bad line)
    value = cast("dict[str, Any]", value)
    kind = value.get("kind")
    if not isinstance(kind, str):
        raise ValueError("has no kind")  # noqa: TRY004
    known = _RECORD_TYPES.get(kind)
    if known is None:
        return UnknownRecord(replace_surrogates(kind))
    return _convert(json.loads(replace_surrogates(json.dumps(value, ensure_ascii=False))), known) or UnknownRecord(kind)


def _convert(value: dict[str, Any], known: type[Record]) -> Record | None:
    fields = {field.encode_name: field for field in msgspec.structs.fields(known)}
    kept = {
        name: item
        for name, item in value.items()
        if name not in fields or fields[name].required or _fits(item, fields[name].type)
    }
    try:
        return msgspec.convert(kept, known)
    except msgspec.ValidationError:
        return None


def _fits(value: object, type_: object) -> bool:
    try:
        msgspec.convert(value, type_)
    except msgspec.ValidationError:
        return False
    return True
