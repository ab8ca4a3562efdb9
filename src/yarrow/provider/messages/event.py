"""Events of a messages stream, with only the fields we use; all others are ignored."""

from typing import Any

import msgspec
from msgspec import Struct

from yarrow.provider.backend_errors import Backend
from yarrow.provider.stream_framing import decode_leniently


class MessagesDelta(Struct, frozen=True, gc=False):
    """Fields that an event adds to a block, or reports at the end of the message."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class MessagesBlock(Struct, frozen=True, gc=False):
    """A block at its start; some servers send it whole."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw()


class MessagesTokenCounts(Struct, frozen=True, gc=False):
    """Running token totals; `input_tokens` excludes cached ones, `output_tokens` includes thinking."""

    input_tokens: float | None = None
    output_tokens: float | None = None
    cache_read_input_tokens: float | None = None
    cache_creation_input_tokens: float | None = None


class MessagesStart(Struct, frozen=True, gc=False):
    """The message at its start."""

    usage: MessagesTokenCounts | None = None


class MessagesEvent(Struct, frozen=True, gc=False):
    """One event of the stream; `content` and `stop_reason` are set in a message that was not streamed."""

    type: str = ""
    delta: MessagesDelta | None = None
    content_block: MessagesBlock | None = None
    message: MessagesStart | str | None = None
    usage: MessagesTokenCounts | None = None
    error: Any = None
    content: list[MessagesBlock] | None = None
    stop_reason: str | None = None


# Not strict: a number may be a string.
_decode = msgspec.json.Decoder(MessagesEvent, strict=False).decode


def parse_event(data: bytes, backend: Backend) -> MessagesEvent:
    """Return the event; MALFORMED_RESPONSE if the data is not a JSON object of the expected shape."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return decode_leniently(data, _decode, backend=backend, kind="event of a messages stream")
