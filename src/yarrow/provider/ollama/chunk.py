"""The fields that we read of a line of an Ollama stream; whatever else a server sends is passed over."""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from yarrow.provider.backend_errors import Backend
from yarrow.provider.lenient_json import decode_leniently


class OllamaFunction(Struct, frozen=True, gc=False):
    """What a call names; the arguments are an object, kept as it was written."""

    name: str | None = None
    arguments: Raw = Raw(b"")


class OllamaCall(Struct, frozen=True, gc=False):
    """A tool call, whole; older servers give it no id."""

    id: str | None = None
    function: OllamaFunction | None = None


class OllamaMessage(Struct, frozen=True, gc=False):
    """What a line adds to the answer."""

    content: str | None = None
    thinking: str | None = None
    tool_calls: list[OllamaCall] | None = None


class OllamaChunk(Struct, frozen=True, gc=False):
    """One line; the counts are tokens and stand on the last one."""

    message: OllamaMessage | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: Any = None


_decode = msgspec.json.Decoder(OllamaChunk, strict=False).decode


def parse_chunk(data: bytes, backend: Backend) -> OllamaChunk:
    """Return the line; MALFORMED_RESPONSE when the data is no JSON object of the expected shape."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return decode_leniently(data, _decode, backend=backend, kind="line of a chat answer")


def is_complete(data: bytes) -> bool:
    """Tell whether a line without an end is all there."""
    try:
        msgspec.json.decode(data, type=Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
