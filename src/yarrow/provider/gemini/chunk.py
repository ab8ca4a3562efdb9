"""The fields that we read of a chunk of the vendor's library; whatever else it holds is passed over."""

from typing import Any

import msgspec
from msgspec import Struct

from yarrow.errors import Code, ProviderError
from yarrow.provider.failures import Speaker


class FunctionCall(Struct, frozen=True, gc=False):
    """A call, always whole."""

    name: str | None = None
    id: str | None = None
    args: dict[str, Any] | None = None


class Part(Struct, frozen=True, gc=False):
    """A piece of the answer; parts of other kinds, such as code that the backend ran, have none of these fields."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: bytes | None = None
    function_call: FunctionCall | None = None


class Content(Struct, frozen=True, gc=False):
    """What a chunk adds."""

    parts: list[Part] | None = None


class Candidate(Struct, frozen=True, gc=False):
    """An answer; we ask for one."""

    content: Content | None = None
    finish_reason: str | None = None


class Feedback(Struct, frozen=True, gc=False):
    """What the backend says about the prompt."""

    block_reason: str | None = None


class Counts(Struct, frozen=True, gc=False):
    """The tokens so far; cached ones are inside the prompt's, thoughts are outside the candidates'."""

    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None


class Chunk(Struct, frozen=True, gc=False):
    """One event of the stream."""

    candidates: list[Candidate] | None = None
    prompt_feedback: Feedback | None = None
    usage_metadata: Counts | None = None


def chunk_of(given: object, speaker: Speaker) -> Chunk:
    """Return what we read of an object of the library; MALFORMED_RESPONSE when it has another shape."""
    try:
        return msgspec.convert(given, Chunk, from_attributes=True)
    except msgspec.ValidationError as error:
        sentence = f"{speaker.name} sent a chunk that cannot be read: {error}"
        raise ProviderError(Code.MALFORMED_RESPONSE, sentence, retryable=True) from None
