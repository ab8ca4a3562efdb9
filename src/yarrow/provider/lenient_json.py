"""Decodes the JSON of a stream that the fast decoder refuses, and words the error for what nothing can read."""

from collections.abc import Callable
from typing import TypeVar

from yarrow.errors import Code, ProviderError
from yarrow.provider.backend_errors import Backend, quote_text
from yarrow.provider.surrogates import replace_surrogates

T = TypeVar("T")


def decode_leniently(data: bytes, decode: Callable[[str], T], *, backend: Backend, kind: str) -> T:
    """Decode bytes that are not UTF-8, and escapes of half a character; else raise what `unreadable` returns."""
    import json

    try:
        return decode(replace_surrogates(json.dumps(json.loads(data.decode("utf-8", "replace")), ensure_ascii=False)))
    except (ValueError, RecursionError):  # both libraries raise their own kinds of it
        raise make_unreadable_error(data, backend=backend, kind=kind) from None


def make_unreadable_error(data: bytes, *, backend: Backend, kind: str) -> ProviderError:
    """Return MALFORMED_RESPONSE for data that was to be of a `kind`, such as "line of a chat answer"."""
    said = quote_text(data[:2400].decode("utf-8", "replace"), backend)
    sentence = f"{backend.name} sent something that is no {kind}: {said}"
    return ProviderError(Code.MALFORMED_RESPONSE, sentence, retryable=True)
