"""The fields that we read of a line of an Ollama stream; whatever else a server sends is passed over."""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from yarrow.provider.failures import Speaker
from yarrow.provider.patient_json import decode_patiently


class Function(Struct, frozen=True, gc=False):
    """What a call names; the arguments are an object, kept as it was written."""

    name: str | None = None
    arguments: Raw = Raw(b"")


class Call(Struct, frozen=True, gc=False):
    """A tool call, whole; older servers give it no id."""

    id: str | None = None
    function: Function | None = None


class Said(Struct, frozen=True, gc=False):
    """What a line adds to the answer."""

    content: str | None = None
    thinking: str | None = None
    tool_calls: list[Call] | None = None


class Line(Struct, frozen=True, gc=False):
    """One line; the counts are tokens and stand on the last one."""

    message: Said | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: Any = None


_decode = msgspec.json.Decoder(Line, strict=False).decode


def parse(data: bytes, speaker: Speaker) -> Line:
    """Return the line; MALFORMED_RESPONSE when the data is no JSON object of the expected shape."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return decode_patiently(data, _decode, speaker=speaker, kind="line of a chat answer")


def is_whole(data: bytes) -> bool:
    """Tell whether a line without an end is all there."""
    try:
        msgspec.json.decode(data, type=Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
