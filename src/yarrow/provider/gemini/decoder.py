"""Decoder of Gemini's stream."""

import json
from typing import Any

import msgspec
from msgspec import Struct

from yarrow.errors import Code, ProviderError
from yarrow.message import StopReason, ToolCall
from yarrow.provider.backend_errors import Backend
from yarrow.provider.base import CallPiece, OpaquePiece, ProviderEvent, ThinkingPiece
from yarrow.provider.base_decoder import AnswerDecoder, EventBuffer, UsageAccumulator
from yarrow.provider.gemini.request import PartMetadata, encode_metadata
from yarrow.provider.request_body import replace_surrogates
from yarrow.provider.tool_calls import ToolCallAssembler


class FunctionCall(Struct, frozen=True, gc=False):
    """A call, always complete."""

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
    """Content that a chunk adds."""

    parts: list[GeminiPart] | None = None


class Candidate(Struct, frozen=True, gc=False):
    """An answer; we request one."""

    content: GeminiContent | None = None
    finish_reason: str | None = None


class PromptFeedback(Struct, frozen=True, gc=False):
    """The backend's verdict on the prompt."""

    block_reason: str | None = None


class GeminiTokenCounts(Struct, frozen=True, gc=False):
    """Running token totals; the prompt's include cached ones, the candidates' exclude thoughts."""

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
    """Return the fields we use of a library object; MALFORMED_RESPONSE if it has another shape."""
    try:
        return msgspec.convert(given, GeminiChunk, from_attributes=True)
    except msgspec.ValidationError as error:
        sentence = f"{backend.name} sent an invalid chunk: {error}"
        raise ProviderError(Code.MALFORMED_RESPONSE, sentence, retryable=True) from None


_STOP_REASONS = {
    "STOP": StopReason.END_TURN,
    "MAX_TOKENS": StopReason.MAX_TOKENS,
    "CONTINUATION": StopReason.PAUSE,
}
_FILTER_REASONS = frozenset({"SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"})
_FAILURE_REASONS = {
    "MALFORMED_FUNCTION_CALL": (Code.MALFORMED_TOOL_CALL, "made a malformed tool call", True),
    "UNEXPECTED_TOOL_CALL": (Code.MALFORMED_TOOL_CALL, "called a tool it was not offered", True),
    "TOO_MANY_TOOL_CALLS": (Code.MALFORMED_TOOL_CALL, "called too many tools in a row", True),
    "MALFORMED_RESPONSE": (Code.MALFORMED_RESPONSE, "generated a malformed answer", True),
    "MISSING_THOUGHT_SIGNATURE": (
        Code.INVALID_REQUEST,
        "found no thought signature in the conversation",
        False,
    ),
}
"""Finish reasons that report a failure: the error code, what the model did, and whether a retry may help."""


class GeminiDecoder(AnswerDecoder):
    """Decoder of one answer: call `take` with each chunk, then `end`; both raise what ends the answer.

    A signature follows the text that it signs.
    """

    def __init__(self, backend: Backend, *, chunk_size: int = 0) -> None:
        super().__init__(backend, EventBuffer(chunk_size))
        self._calls = ToolCallAssembler(backend)
        self._usage = UsageAccumulator()
        self._has_output = False
        self._reason = ""

    def take(self, given: object) -> list[ProviderEvent]:
        """Return the events in a chunk. Raises MALFORMED_RESPONSE and MALFORMED_TOOL_CALL."""
        chunk = convert_chunk(given, self._backend)
        _add_counts(self._usage, chunk.usage_metadata)
        for part in _parts(chunk):
            self._take_part(part)
        if not self._reason and (reason := _find_reason(chunk)):
            self._reason = reason
            self.complete = True
        self._events.flush_if_full()
        return self._events.take_events()

    def end(self) -> list[ProviderEvent]:
        """Return the remaining events of a complete answer. Raises STREAM_TRUNCATED, or the error that a finish reason
        reports.
        """
        self._check_complete()
        if failure := _FAILURE_REASONS.get(self._reason):
            code, what, passing = failure
            raise ProviderError(code, f"{self._backend.name} {what} ({self._reason}): try again", retryable=passing)
        if self._reason == "STOP" and not self._has_output:
            sentence = f"{self._backend.name} returned an empty answer"
            raise ProviderError(Code.EMPTY_RESPONSE, sentence, retryable=True)
        self._events.flush()
        self._finish(self._usage.usage(), self._stop())
        return self._events.take_events()

    def _take_part(self, part: GeminiPart) -> None:
        text = replace_surrogates(part.text or "")
        signature = part.thought_signature or b""
        if part.function_call is not None:
            self._events.add_event(CallPiece(self._make_call(part.function_call, signature)))
            self._has_output = True
        elif part.thought:
            if text:
                self._events.add_event(ThinkingPiece(text))
            if signature:
                self._events.add_event(OpaquePiece(encode_metadata(PartMetadata(signature, thought=text))))
        else:
            if text:
                self._events.add_text(text)
                self._has_output = True
            if signature:
                self._events.add_event(OpaquePiece(encode_metadata(PartMetadata(signature, length=len(text)))))

    def _make_call(self, call: FunctionCall, signature: bytes) -> ToolCall:
        reported = replace_surrogates(call.id or "")
        call_id = self._calls.choose_id(reported)
        note = encode_metadata(PartMetadata(signature, reported if reported == call_id else ""))
        arguments = replace_surrogates(json.dumps(call.args or {}, ensure_ascii=False, separators=(",", ":")))
        return self._calls.make(call_id, replace_surrogates(call.name or ""), arguments, opaque=note)

    def _stop(self) -> StopReason:
        if self._reason == "STOP" and self._calls.count:
            return StopReason.TOOL_USE
        return (
            StopReason.CONTENT_FILTER
            if self._reason in _FILTER_REASONS
            else _STOP_REASONS.get(self._reason, StopReason.OTHER)
        )


def _parts(chunk: GeminiChunk) -> list[GeminiPart]:
    content = chunk.candidates[0].content if chunk.candidates else None
    return (content.parts if content else None) or []


def _find_reason(chunk: GeminiChunk) -> str:
    """Return why the answer ended; a blocked prompt has no answer, and counts as withheld for safety."""
    if chunk.candidates:
        return chunk.candidates[0].finish_reason or ""
    blocked = chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason
    return "SAFETY" if blocked else ""


def _add_counts(usage: UsageAccumulator, counts: GeminiTokenCounts | None) -> None:
    if counts is None:
        return
    usage.add("prompt", counts.prompt_token_count)
    usage.add("cache_read", counts.cached_content_token_count)
    usage.add("answer", counts.candidates_token_count)
    usage.add("thinking", counts.thoughts_token_count)
