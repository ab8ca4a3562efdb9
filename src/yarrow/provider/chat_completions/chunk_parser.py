"""Decodes one event of a chat-completions stream: fast when it is as it should be, patiently when it is not."""

import msgspec

from yarrow.provider.backend_errors import Backend
from yarrow.provider.chat_completions.chunk import ChatChunk
from yarrow.provider.lenient_json import decode_leniently

# Not strict: a number may come as a string or with a fraction of zero.
_decode = msgspec.json.Decoder(ChatChunk, strict=False).decode


def parse_chunk(data: bytes, backend: Backend) -> ChatChunk:
    """Return the chunk; MALFORMED_RESPONSE when the data is no JSON object of the expected shape."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return decode_leniently(data, _decode, backend=backend, kind="chat-completions chunk")
