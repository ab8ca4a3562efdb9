"""Decodes one event of a chat-completions stream: fast when it is as it should be, patiently when it is not."""

import msgspec

from yarrow.provider.chat_completions.chunk import Chunk
from yarrow.provider.failures import Speaker
from yarrow.provider.patient_json import decode_patiently

# Not strict: a number may come as a string or with a fraction of zero.
_decode = msgspec.json.Decoder(Chunk, strict=False).decode


def parse(data: bytes, speaker: Speaker) -> Chunk:
    """Return the chunk; MALFORMED_RESPONSE when the data is no JSON object of the expected shape."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return decode_patiently(data, _decode, speaker=speaker, kind="chat-completions chunk")
