"""The fields that we read of a chunk of the vendor's library; whatever else it holds is passed over."""

from typing import Any

import msgspec
from msgspec import Struct

from yarrow.errors import Code, ProviderError
from yarrow.provider.backend_errors import Backend


class FunctionCall(Struct, frozen=True, gc=False):
    """A call, always whole."""

    name: str | None = None
    id: str | None = None
    args: dict[str, Any] | None = None


class GeminiPart(Struct, frozen=True, gc=False):
    """A piece of the answer; parts of other kinds, such as code that the backend ran, have none of these fields."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: bytes | None = None
    function_call: FunctionCall | None = None


class GeminiContent(Struct, frozen=True, gc=False):
    """What a chunk adds."""

    parts: list[GeminiPart] | None = None


class Candidate(Struct, frozen=True, gc=False):
    """An answer; we ask for one."""

    content: GeminiContent | None = None
    finish_reason: str | None = None


class PromptFeedback(Struct, frozen=True, gc=False):
    """What the backend says about the prompt."""

    block_reason: str | None = None


class GeminiTokenCounts(Struct, frozen=True, gc=False):
    """The tokens so far; cached ones are inside the prompt's, thoughts are outside the candidates'."""

    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None


class GeminiChunk(Struct, frozen=True, gc=False):
    """One event of the stream."""

    candidates: list[Candidate] | None = None
    prompt_feedback: PromptFeedback | None = None
    usage_metadata: GeminiTokenCounts | None = None


def convert_chunk(given: object, backend: Backend) -> GeminiChunk:
    """Return what we read of an object of the library; MALFORMED_RESPONSE when it has another shape."""
    try:
        return msgspec.convert(given, GeminiChunk, from_attributes=True)
    except msgspec.ValidationError as error:
        sentence = f"{backend.name} sent a chunk that cannot be read: {error}"
        raise ProviderError(Code.MALFORMED_RESPONSE, sentence, retryable=True) from None
