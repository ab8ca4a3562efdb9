"""The fields that we read of an event of a messages stream; whatever else a server sends is passed over."""

from typing import Any

import msgspec
from msgspec import Struct

from yarrow.provider.backend_errors import Backend
from yarrow.provider.stream_framing import decode_leniently


class MessagesDelta(Struct, frozen=True, gc=False):
    """What an event adds to a block, or tells at the end of the message."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class MessagesBlock(Struct, frozen=True, gc=False):
    """A block as it begins; some servers send it whole."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw()


class MessagesTokenCounts(Struct, frozen=True, gc=False):
    """The tokens so far; cached ones are outside of `input_tokens`, thinking is inside `output_tokens`."""

    input_tokens: float | None = None
    output_tokens: float | None = None
    cache_read_input_tokens: float | None = None
    cache_creation_input_tokens: float | None = None


class MessagesStart(Struct, frozen=True, gc=False):
    """The message as it begins."""

    usage: MessagesTokenCounts | None = None


class MessagesEvent(Struct, frozen=True, gc=False):
    """One event of the stream; `content` and `stop_reason` stand in a message that was not streamed."""

    type: str = ""
    delta: MessagesDelta | None = None
    content_block: MessagesBlock | None = None
    message: MessagesStart | str | None = None
    usage: MessagesTokenCounts | None = None
    error: Any = None
    content: list[MessagesBlock] | None = None
    stop_reason: str | None = None


# Not strict: a number may come as a string.
_decode = msgspec.json.Decoder(MessagesEvent, strict=False).decode


def parse_event(data: bytes, backend: Backend) -> MessagesEvent:
    """Return the event; MALFORMED_RESPONSE when the data is no JSON object of the expected shape."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return decode_leniently(data, _decode, backend=backend, kind="event of a messages stream")
