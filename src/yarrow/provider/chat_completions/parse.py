"""Decodes one event of a chat-completions stream: fast when it is as it should be, patiently when it is not."""

import msgspec

from yarrow.errors import Code, ProviderError
from yarrow.provider.chat_completions.chunk import Chunk
from yarrow.provider.failures import Speaker, shown

# Not strict: a number may come as a string or with a fraction of zero.
_decode = msgspec.json.Decoder(Chunk, strict=False).decode


def parse(data: bytes, speaker: Speaker) -> Chunk:
    """Return the chunk; MALFORMED_RESPONSE when the data is no JSON object of the expected shape."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _patiently(data, speaker)


def _patiently(data: bytes, speaker: Speaker) -> Chunk:
    """Take what the fast decoder refuses: bytes that are not UTF-8, and escapes of half a character."""
    import json

    try:
        text = json.dumps(json.loads(data.decode("utf-8", "replace")), ensure_ascii=False)
        # A round through UTF-16 joins the halves of a character and makes U+FFFD of a half that is alone.
        return _decode(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
    except (ValueError, RecursionError):  # both libraries raise their own kinds of it
        said = shown(data[:2400].decode("utf-8", "replace"), speaker)
        sentence = f"{speaker.name} sent something that is no chat-completions chunk: {said}"
        raise ProviderError(Code.MALFORMED_RESPONSE, sentence, retryable=True) from None
