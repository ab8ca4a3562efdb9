"""The fields that we read of a chat-completions chunk; whatever else a server sends is passed over."""

from typing import Any

from msgspec import Struct


class FunctionDelta(Struct, frozen=True, gc=False):
    """What a fragment adds to a call; some servers send the arguments as an object, whole."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CallDelta(Struct, frozen=True, gc=False):
    """A fragment of a tool call."""

    index: int | None = None
    id: str | int | None = None
    function: FunctionDelta | None = None
    extra_content: dict[str, Any] | None = None
    provider_specific_fields: dict[str, Any] | None = None


class TextPart(Struct, frozen=True, gc=False):
    """A part of content that comes as a list."""

    text: str | None = None


class ChatDelta(Struct, frozen=True, gc=False):
    """What a chunk adds to the answer."""

    content: str | list[TextPart] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_text: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    thinking_blocks: list[dict[str, Any]] | None = None
    extra_content: dict[str, Any] | None = None
    provider_specific_fields: dict[str, Any] | None = None
    tool_calls: list[CallDelta] | None = None


class CachedTokens(Struct, frozen=True, gc=False):
    """How the prompt's tokens divide."""

    cached_tokens: float | None = None
    cache_write_tokens: float | None = None


class ReasoningTokens(Struct, frozen=True, gc=False):
    """The part of the answer that was thinking."""

    reasoning_tokens: float | None = None


class TokenCounts(Struct, frozen=True, gc=False):
    """The tokens so far, cached ones inside `prompt_tokens`, reasoning inside `completion_tokens`."""

    prompt_tokens: float | None = None
    completion_tokens: float | None = None
    prompt_tokens_details: CachedTokens | None = None
    prompt_cache_hit_tokens: float | None = None
    cached_tokens: float | None = None
    completion_tokens_details: ReasoningTokens | None = None


class GroqExtension(Struct, frozen=True, gc=False):
    """Where one host puts its usage."""

    usage: TokenCounts | None = None


class Timings(Struct, frozen=True, gc=False):
    """What llama.cpp measured, in tokens: read from the cache, processed, generated."""

    cache_n: float | None = None
    prompt_n: float | None = None
    predicted_n: float | None = None


class Choice(Struct, frozen=True, gc=False):
    """One of the answers, of which we ask for one; `message` stands in a reply that was not streamed."""

    delta: ChatDelta | None = None
    message: ChatDelta | None = None
    finish_reason: str | None = None
    usage: TokenCounts | None = None


class ChatChunk(Struct, frozen=True, gc=False):
    """One event of the stream."""

    choices: list[Choice] | None = None
    usage: TokenCounts | None = None
    x_groq: GroqExtension | None = None
    timings: Timings | None = None
    error: Any = None
    object: str | None = None
