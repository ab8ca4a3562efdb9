"""Chunks of a chat-completions stream: usage, thinking and opaque fields."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from yarrow.message import Thinking, Usage
from yarrow.provider.backend_errors import Backend
from yarrow.provider.base_decoder import UsageAccumulator
from yarrow.provider.stream_framing import decode_json_object, decode_leniently


class FunctionDelta(Struct, frozen=True, gc=False):
    """The function part of a call's fragment; some servers send the arguments whole, as an object."""

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
    """A part of content sent as a list."""

    text: str | None = None


class ChatDelta(Struct, frozen=True, gc=False):
    """Fields that a chunk adds to the answer."""

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
    """Cached tokens of the prompt."""

    cached_tokens: float | None = None
    cache_write_tokens: float | None = None


class ReasoningTokens(Struct, frozen=True, gc=False):
    """Thinking tokens of the answer."""

    reasoning_tokens: float | None = None


class TokenCounts(Struct, frozen=True, gc=False):
    """Running token totals; `prompt_tokens` includes cached ones, `completion_tokens` includes reasoning."""

    prompt_tokens: float | None = None
    completion_tokens: float | None = None
    prompt_tokens_details: CachedTokens | None = None
    prompt_cache_hit_tokens: float | None = None
    cached_tokens: float | None = None
    completion_tokens_details: ReasoningTokens | None = None


class GroqExtension(Struct, frozen=True, gc=False):
    """Groq's extension field, which contains its usage."""

    usage: TokenCounts | None = None


class Timings(Struct, frozen=True, gc=False):
    """Token counts measured by llama.cpp: read from the cache, processed, generated."""

    cache_n: float | None = None
    prompt_n: float | None = None
    predicted_n: float | None = None


class Choice(Struct, frozen=True, gc=False):
    """One of the answers, of which we request one; `message` is set if the reply was not streamed."""

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


# Not strict: a number may be a string, or have a fraction of zero.
_decode = msgspec.json.Decoder(ChatChunk, strict=False).decode


def parse_chunk(data: bytes, backend: Backend) -> ChatChunk:
    """Return the chunk; MALFORMED_RESPONSE if the data is not a JSON object of the expected shape."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return decode_leniently(data, _decode, backend=backend, kind="chat-completions chunk")


class ChatUsage:
    """Accumulator of each chunk's figures; llama.cpp's timings are used if no usage was reported."""

    def __init__(self) -> None:
        self._reported = UsageAccumulator()
        self._timings: Timings | None = None

    def add(self, chunk: ChatChunk) -> None:
        """Add the figures of a chunk, if it has any."""
        if chunk.choices and chunk.choices[0].usage is not None:
            self._add(chunk.choices[0].usage)
        if chunk.x_groq is not None and chunk.x_groq.usage is not None:
            self._add(chunk.x_groq.usage)
        if chunk.usage is not None:
            self._add(chunk.usage)
        if chunk.timings is not None:
            self._timings = chunk.timings

    def usage(self) -> Usage | None:
        """Return the tokens of the answer; None if the server reported none."""
        if self._timings is not None:
            if self._reported.usage() is None:
                self._reported.add("fresh", self._timings.prompt_n)
                self._reported.add("output", self._timings.predicted_n)
            self._reported.add("cache_read", self._timings.cache_n)
        return self._reported.usage()

    def _add(self, counts: TokenCounts) -> None:
        add = self._reported.add
        add("prompt", counts.prompt_tokens)
        add("output", counts.completion_tokens)
        # Moonshot and DeepSeek report cached tokens next to the prompt's, others in its details.
        add("cache_read", counts.cached_tokens)
        add("cache_read", counts.prompt_cache_hit_tokens)
        if counts.prompt_tokens_details is not None:
            add("cache_read", counts.prompt_tokens_details.cached_tokens)
            add("cache_write", counts.prompt_tokens_details.cache_write_tokens)
        if counts.completion_tokens_details is not None:
            add("thinking", counts.completion_tokens_details.reasoning_tokens)


REASONING_DETAILS = "reasoning_details"
"""OpenRouter's field, which also contains the thinking text."""
MESSAGE_FIELDS = (REASONING_DETAILS, "thinking_blocks", "extra_content", "provider_specific_fields")
"""Opaque fields of messages: OpenRouter's, LiteLLM's for Claude, Gemini's own endpoint's, LiteLLM's for others."""
CALL_FIELDS = ("extra_content", "provider_specific_fields")
"""Opaque fields of calls, from Gemini's own endpoint and LiteLLM; they contain `thought_signature`."""
_STREAMED_MEMBERS = ("text", "summary", "data")
"""Members of a detail that arrive in pieces; of any other the last non-null value is used."""


class OpaqueFields:
    """Opaque fields of one message while it is streamed."""

    def __init__(self) -> None:
        self._details: dict[object, dict[str, Any]] = {}
        self._blocks: list[dict[str, Any]] = []
        self._others: dict[str, dict[str, Any]] = {}

    def add(self, delta: ChatDelta) -> None:
        """Add the fields of a delta."""
        for fragment in delta.reasoning_details or ():
            self._add_detail(fragment)
        for fragment in delta.thinking_blocks or ():
            self._add_block(fragment)
        for name, value in (
            ("extra_content", delta.extra_content),
            ("provider_specific_fields", delta.provider_specific_fields),
        ):
            if value:
                self._others[name] = self._others.get(name, {}) | value

    def encode(self) -> str:
        """Return the fields as JSON text; empty if there were none."""
        fields: dict[str, Any] = {**self._others}
        if self._details:
            fields[REASONING_DETAILS] = list(self._details.values())
        if self._blocks:
            fields["thinking_blocks"] = self._blocks
        return encode_fields(fields)

    def _add_detail(self, fragment: dict[str, Any]) -> None:
        """Join the fragments with the same index and type into one detail."""
        known = self._details.setdefault(str((fragment.get("index"), fragment.get("type"))), {})
        for name, value in fragment.items():
            if name in _STREAMED_MEMBERS and isinstance(value, str) and isinstance(known.get(name), str):
                known[name] += value
            elif value is not None or name not in known:
                known[name] = value

    def _add_block(self, fragment: dict[str, Any]) -> None:
        """Join the fragments of a thinking block; a signature ends the block."""
        last = self._blocks[-1] if self._blocks else {}
        if fragment.get("type") != "thinking" or last.get("type") != "thinking" or last.get("signature"):
            self._blocks.append(dict(fragment))
            return
        last["thinking"] = f"{last.get('thinking') or ''}{fragment.get('thinking') or ''}"
        last |= {name: value for name, value in fragment.items() if name != "thinking" and value is not None}


def get_call_fields(delta: CallDelta) -> dict[str, Any]:
    """Return the opaque fields in a fragment of a call."""
    fields = {"extra_content": delta.extra_content, "provider_specific_fields": delta.provider_specific_fields}
    return {name: value for name, value in fields.items() if value}


def encode_fields(fields: Mapping[str, Any]) -> str:
    """Return fields as opaque text; empty if there are none."""
    return msgspec.json.encode(fields).decode() if fields else ""


def decode_fields(opaque: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the named fields in an opaque text; empty if it contains something else."""
    held = decode_json_object(opaque) if opaque else {}
    return {name: held[name] for name in names if isinstance(held.get(name), list | dict) and held[name]}


_OPAQUE_BY_FIELD = {field: f'{{"field":"{field}"}}' for field in ("reasoning_content", "reasoning", "reasoning_text")}
_FIELD_BY_OPAQUE = {opaque: field for field, opaque in _OPAQUE_BY_FIELD.items()}


def get_thinking(delta: ChatDelta) -> tuple[str, str]:
    """Return the thinking text of a delta and its opaque data; a server that fills two fields repeats the same text."""
    if delta.reasoning_content:
        return delta.reasoning_content, _OPAQUE_BY_FIELD["reasoning_content"]
    if delta.reasoning:
        return delta.reasoning, _OPAQUE_BY_FIELD["reasoning"]
    if delta.reasoning_text:
        return delta.reasoning_text, _OPAQUE_BY_FIELD["reasoning_text"]
    return "", ""


def replay_thinking(blocks: Iterable[Thinking]) -> dict[str, str]:
    """Return the fields, with their texts, that send thinking back as it arrived."""
    fields: dict[str, str] = {}
    for block in blocks:
        field = _FIELD_BY_OPAQUE.get(block.opaque)
        if field is not None:
            fields[field] = fields.get(field, "") + block.text
    return fields
