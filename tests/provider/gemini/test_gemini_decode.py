"""Results of the Gemini decoder for chunks; recordings go through the library in the tests of the adapter."""

from typing import Any

import pytest
from google.genai.types import GenerateContentResponse

from yarrow.errors import Code, ProviderError
from yarrow.message import StopReason, ToolCall, Usage
from yarrow.provider.backend_errors import Backend
from yarrow.provider.base import CallPiece, OpaquePiece, StopPiece, TextPiece, ThinkingPiece, UsagePiece
from yarrow.provider.gemini.decoder import GeminiDecoder
from yarrow.provider.tool_calls import MAX_CALLS


def chunk(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> GenerateContentResponse:
    """An object of the library; bytes are as they are, not base64."""
    candidate = {"content": {"parts": list(parts), "role": "model"}, "finish_reason": finish}
    return GenerateContentResponse.model_validate({"candidates": [candidate], **more})


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"text": words, **more}


def call(name: str | None = "ls", **more: Any) -> dict[str, Any]:
    return {"function_call": {"name": name, **more}}


def decoded(*chunks: GenerateContentResponse) -> list[Any]:
    decoder = GeminiDecoder(Backend("acme"))
    return [event for one in chunks for event in decoder.take(one)] + decoder.end()


def failure(*chunks: GenerateContentResponse) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        decoded(*chunks)
    return caught.value


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("STOP", StopReason.END_TURN),
        ("MAX_TOKENS", StopReason.MAX_TOKENS),
        *((name, StopReason.CONTENT_FILTER) for name in ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "SPII")),
        ("PROHIBITED_CONTENT", StopReason.CONTENT_FILTER),
        ("CONTINUATION", StopReason.PAUSE),
        ("OTHER", StopReason.OTHER),
        ("IMAGE_SAFETY", StopReason.OTHER),
    ],
)
def test_finish_reasons(finish: str, reason: StopReason) -> None:
    assert decoded(chunk(text("x")), chunk(finish=finish)) == [TextPiece("x"), StopPiece(reason)]


@pytest.mark.parametrize(
    ("finish", "code", "retryable"),
    [
        ("MALFORMED_FUNCTION_CALL", Code.MALFORMED_TOOL_CALL, True),
        ("UNEXPECTED_TOOL_CALL", Code.MALFORMED_TOOL_CALL, True),
        ("TOO_MANY_TOOL_CALLS", Code.MALFORMED_TOOL_CALL, True),
        ("MALFORMED_RESPONSE", Code.MALFORMED_RESPONSE, True),
        ("MISSING_THOUGHT_SIGNATURE", Code.INVALID_REQUEST, False),
    ],
)
def test_case_P_21_failing_finish_reasons(finish: str, code: Code, *, retryable: bool) -> None:
    error = failure(chunk({"thought_signature": b"sig"}, finish=finish))
    assert (error.code, error.retryable) == (code, retryable)
    assert finish in error.message


def test_a_blocked_prompt_is_a_content_filter_error() -> None:
    blocked = GenerateContentResponse.model_validate({"prompt_feedback": {"block_reason": "SAFETY"}})
    assert decoded(blocked) == [StopPiece(StopReason.CONTENT_FILTER)]


def test_an_empty_answer_is_an_error() -> None:
    error = failure(chunk(text("hm", thought=True)), chunk(text(""), finish="STOP"))
    assert (error.code, error.retryable) == (Code.EMPTY_RESPONSE, True)


def test_a_stream_without_a_finish_reason_is_truncated() -> None:
    error = failure(chunk(text("x")))
    assert (error.code, error.retryable) == (Code.STREAM_TRUNCATED, True)


def test_calls_keep_their_signature_and_their_id() -> None:
    signed = call(id="fc", args={"n": 10**30, "s": "\ud83c", "e": "é"}) | {"thought_signature": b"\xff\xfe"}
    one, stop = decoded(chunk(signed, finish="STOP"))
    arguments = f'{{"n":{10**30},"s":"\ufffd","e":"é"}}'
    assert one == CallPiece(ToolCall("fc", "ls", arguments, opaque='{"thoughtSignature":"//4=","id":"fc"}'))
    assert stop == StopPiece(StopReason.TOOL_USE)


def test_arguments_that_json_cannot_represent() -> None:
    one, _ = decoded(chunk(call(id="fc", args={"n": float("nan")}), finish="STOP"))
    assert (one.call.arguments, one.call.invalid_arguments) == ("{}", '{"n":NaN}')


def test_a_complete_call_before_the_limit_is_kept() -> None:
    events = decoded(chunk(call(id="fc")), chunk(finish="MAX_TOKENS"))
    assert events == [CallPiece(ToolCall("fc", "ls", "{}", opaque='{"id":"fc"}')), StopPiece(StopReason.MAX_TOKENS)]


@pytest.mark.parametrize("parts", [[call(None)], [call()] * (MAX_CALLS + 1)])
def test_invalid_calls_are_rejected(parts: list[dict[str, Any]]) -> None:
    error = failure(chunk(*parts, finish="STOP"))
    assert (error.code, error.retryable) == (Code.MALFORMED_TOOL_CALL, True)


def test_signatures_follow_the_signed_part() -> None:
    events = decoded(
        chunk(text("hm", thought=True)),
        chunk(text("so", thought=True, thought_signature=b"a")),
        chunk(text("x"), text("yz", thought_signature=b"b")),
        chunk({"thought_signature": b"c"}, finish="STOP"),
    )
    assert events == [
        ThinkingPiece("hm"),
        ThinkingPiece("so"),
        OpaquePiece('{"thoughtSignature":"YQ==","thought":"so"}'),
        TextPiece("xyz"),
        OpaquePiece('{"thoughtSignature":"Yg==","length":2}'),
        OpaquePiece('{"thoughtSignature":"Yw=="}'),
        StopPiece(StopReason.END_TURN),
    ]


def test_lone_surrogates_are_replaced() -> None:
    assert decoded(chunk(text("x\ud83c"), finish="STOP"))[0] == TextPiece("x\ufffd")


def test_the_last_value_of_each_count_applies() -> None:
    first = {"prompt_token_count": 9, "cached_content_token_count": 4, "candidates_token_count": 1}
    last = {"candidates_token_count": 5, "thoughts_token_count": 7}
    events = decoded(chunk(text("x"), usage_metadata=first), chunk(finish="STOP", usage_metadata=last))
    assert events[1] == UsagePiece(Usage(5, 12, cache_read=4, thinking=7))


def test_negative_counts_are_ignored() -> None:
    counts = {"prompt_token_count": 2, "cached_content_token_count": 4, "candidates_token_count": -1}
    assert decoded(chunk(text("x"), finish="STOP", usage_metadata=counts))[1] == UsagePiece(Usage(0, 0, cache_read=4))


def test_only_the_first_candidate_counts() -> None:
    other = {"content": {"parts": [{"text": "no"}]}, "finish_reason": "STOP"}
    both = {"candidates": [{"content": {"parts": [{"text": "yes"}]}, "finish_reason": "STOP"}, other]}
    assert decoded(GenerateContentResponse.model_validate(both))[0] == TextPiece("yes")


def test_an_object_of_another_type() -> None:
    with pytest.raises(ProviderError) as caught:
        GeminiDecoder(Backend("acme")).take({"candidates": 5})
    assert (caught.value.code, caught.value.retryable) == (Code.MALFORMED_RESPONSE, True)
