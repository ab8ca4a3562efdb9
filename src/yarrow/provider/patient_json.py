"""Decodes the JSON of a stream that the fast decoder refuses, and words the error for what nothing can read."""

from collections.abc import Callable
from typing import TypeVar

from yarrow.errors import Code, ProviderError
from yarrow.provider.failures import Speaker, shown
from yarrow.provider.unicode import whole

T = TypeVar("T")


def decode_patiently(data: bytes, decode: Callable[[str], T], *, speaker: Speaker, kind: str) -> T:
    """Decode bytes that are not UTF-8, and escapes of half a character; else raise what `unreadable` returns."""
    import json

    try:
        return decode(whole(json.dumps(json.loads(data.decode("utf-8", "replace")), ensure_ascii=False)))
    except (ValueError, RecursionError):  # both libraries raise their own kinds of it
        raise unreadable(data, speaker=speaker, kind=kind) from None


def unreadable(data: bytes, *, speaker: Speaker, kind: str) -> ProviderError:
    """Return MALFORMED_RESPONSE for data that was to be of a `kind`, such as "line of a chat answer"."""
    said = shown(data[:2400].decode("utf-8", "replace"), speaker)
    sentence = f"{speaker.name} sent something that is no {kind}: {said}"
    return ProviderError(Code.MALFORMED_RESPONSE, sentence, retryable=True)
