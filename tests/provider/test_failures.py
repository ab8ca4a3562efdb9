"""Error responses of backends become one typed error with a clear message."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.errors import Code, ProviderError
from yarrow.provider.backend_errors import (
    MAX_TEXT_CHARACTERS,
    Backend,
    ErrorResponse,
    make_backend,
    make_event_error,
    make_response_error,
)

WIRE = Path(__file__).parents[1] / "fixtures" / "wire"
ROWS: list[dict[str, Any]] = json.loads((WIRE / "http-errors.json").read_text("utf-8"))
SPEAKER = Backend("acme", "sk-secret-1")


def answered(status: int, body: object = "", headers: dict[str, str] | None = None) -> ProviderError:
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return make_response_error(ErrorResponse(status, headers or {}, data), SPEAKER)


def refused(message: str, status: int = 400, **fields: Any) -> ProviderError:
    return answered(status, {"error": {"message": message} | fields})


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['provider']}-{row['status']}-{n}" for n, row in enumerate(ROWS)])
def test_every_known_error_response(row: dict[str, Any]) -> None:
    expected = row["expected"]
    error = answered(row["status"], row["body"], row["headers"])
    assert error.code.lower() == expected["code"]
    assert error.retryable is expected["retryable"]
    assert error.retry_after == expected["retry_after_s"]
    assert error.context_window == (expected["context_window"] or 0)
    assert error.status == row["status"]


def test_error_response_rows_exist() -> None:
    assert len(ROWS) == 22


def test_case_P_23_overflow_wording_of_llama_cpp() -> None:
    text = "request (66202 tokens) exceeds the available context size (65536 tokens), try increasing it"
    error = refused(text, code=400, type="exceed_context_size_error")
    assert (error.code, error.retryable, error.context_window) == (Code.CONTEXT_OVERFLOW, False, 65536)
    told = refused("too much", type="exceed_context_size_error", n_prompt_tokens=9000, n_ctx=8192)
    assert told.context_window == 8192


OVERFLOWS = {
    "prompt is too long: 210000 tokens > 200000 maximum": 200_000,
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200,000": 200_000,
    "This model's maximum context length is 262144 tokens. However, you requested 0 output tokens and your prompt "
    "contains at least 262145 input tokens": 262_144,
    "Your input exceeds the context window of this model. Please adjust your input": 0,
    "Input tokens exceed the configured limit of 272000 tokens.": 272_000,
    "Requested token count exceeds the model's maximum context length of 131072 tokens": 131_072,
    "Please reduce the length of the messages or completion.": 0,
    "Context size has been exceeded.": 0,
    "input is larger than the max context size. skipped": 0,
    "the input length exceeds the context length": 0,
    "the prompt is longer than the context length currently available to the model": 0,
    "the request is greater than the context length": 0,
    "This model's maximum prompt length is 131072 but the request contains 150000 tokens": 131_072,
    "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)": 262_144,
    "invalid params, context window exceeds limit (2013)": 0,
    "Prompt contains 40000 tokens, too large for model with 32768 maximum context length": 32_768,
    "Input is too long for requested model.": 0,
    "prompt token count of 70000 exceeds the limit of 64000": 64_000,
    "Current length is 9000 while limit is 8192": 8192,
    "The input (9000 tokens) is longer than the model's context length (8192 tokens).": 8192,
    "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context "
    "length of only 4096 tokens, which is not enough.": 4096,
    "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 9000>= "
    "n_ctx: 4096)": 4096,
    "The decoder prompt (length 9000) is longer than the maximum model length of 8192.": 8192,
    "total tokens 9000 exceeds max model len 8192": 8192,
    "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens": 4096,
    "litellm.ContextWindowExceededError: litellm.BadRequestError: litellm._pre_call_checks: Context Window exceeded "
    "for given call. No models have context window large enough for this call. Model=m, Max Input Tokens=4000": 4000,
    "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]": 30_720,
    "Prompt exceeds max length": 0,
    "Input length 40000 exceeds the maximum length 32768": 32_768,
    "too many tokens: total number of tokens in the prompt cannot exceed 4081": 4081,
    "the number of input tokens 9000 cannot exceed the total tokens limit 8192 for this model": 8192,
    "the max input characters is 11200": 0,
}


@pytest.mark.parametrize("text", OVERFLOWS)
def test_case_K_06_overflow_in_every_wording(text: str) -> None:
    error = refused(text)
    assert (error.code, error.retryable, error.context_window) == (Code.CONTEXT_OVERFLOW, False, OVERFLOWS[text])


def test_overflow_inside_a_wrapper_and_inside_a_stream() -> None:
    assert refused("upstream: context size has been exceeded", 503).code is Code.CONTEXT_OVERFLOW
    told = b'{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}'
    assert make_event_error(told, SPEAKER).code is Code.CONTEXT_OVERFLOW


NOT_OVERFLOWS = (
    *("`max_tokens` must be <= 8192", "Range of max_tokens should be [1, 8192]", "tool name exceeds max length 64"),
    *("user: string exceeds maximum length of 64", "too many stop sequences: cannot exceed 4", "image is too long"),
    *("the prompt must not be empty", "input length must be positive", "n exceeds the maximum of 1"),
)


@pytest.mark.parametrize("text", NOT_OVERFLOWS)
def test_other_limits_are_not_an_overflow(text: str) -> None:
    assert refused(text).code is Code.INVALID_REQUEST


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("The response was filtered due to the prompt triggering the policy.", {"code": "content_filter"}),
        ("filtered", {"code": "x", "innererror": {"code": "ResponsibleAIPolicyViolation"}}),
        ("Input data may contain inappropriate content.", {"code": "data_inspection_failed"}),
        ("Content Exists Risk", {"type": "invalid_request_error"}),
        ("The request was rejected because it was considered high risk", {}),
        ("unsafe", {"code": "1301"}),
    ],
)
def test_case_RA_20_content_filter_errors(text: str, more: dict[str, Any]) -> None:
    error = refused(text, **more)
    assert (error.code, error.retryable) == (Code.CONTENT_FILTER, False)
    assert "Rephrase" in error.message


def test_case_RA_13_a_call_that_the_server_could_not_parse() -> None:
    written = "<function=read={}</function>"
    error = refused("Failed to call a function.", code="tool_use_failed", failed_generation=written + "x" * 100_000)
    assert (error.code, error.retryable) == (Code.MALFORMED_TOOL_CALL, True)
    assert written in error.message
    assert len(error.message) < 1_000
    assert refused("the function call failed").code is Code.INVALID_REQUEST


def test_a_token_rate_limit_is_not_an_overflow() -> None:
    text = (
        "Request too large: tokens per min (TPM): Limit 6000, Requested 7000. Please reduce the length of the messages"
    )
    assert refused(text, 429).code is Code.RATE_LIMIT
    assert refused(text, 400).code is Code.INVALID_REQUEST
    assert refused("maximum context length is 5", 429).code is Code.RATE_LIMIT


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (302, Code.INVALID_REQUEST, False),
        (400, Code.REQUEST_TOO_LARGE, False),
        (401, Code.AUTH, False),
        (402, Code.QUOTA, False),
        (403, Code.AUTH, False),
        (404, Code.NOT_FOUND, False),
        (408, Code.SERVER_ERROR, True),
        (409, Code.INVALID_REQUEST, True),
        (413, Code.REQUEST_TOO_LARGE, False),
        (422, Code.INVALID_REQUEST, False),
        (425, Code.SERVER_ERROR, True),
        (429, Code.RATE_LIMIT, True),
        (500, Code.SERVER_ERROR, True),
        (501, Code.UNSUPPORTED_FEATURE, False),
        (502, Code.SERVER_ERROR, True),
        (503, Code.OVERLOADED, True),
        (504, Code.SERVER_ERROR, True),
        (529, Code.OVERLOADED, True),
    ],
)
def test_a_status_without_a_body(status: int, code: Code, retryable: bool) -> None:
    error = answered(status)
    assert (error.code, error.retryable) == (code, retryable)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (refused("x", 429, code="1113"), Code.QUOTA),
        (refused("x", 429, type="exceeded_current_quota_error"), Code.QUOTA),
        (refused("x", 429, details=[{"violations": [{"quotaId": "RequestsPerDayPerProject"}]}]), Code.QUOTA),
        (refused("x", 400, details={"error_code": "enforced_spend_limit_reached"}), Code.QUOTA),
        (refused("Extra inputs are not permitted", 422), Code.UNSUPPORTED_PARAMETER),
        (refused("Unrecognized request argument supplied: reasoning_effort"), Code.UNSUPPORTED_PARAMETER),
        (refused("The image input is not supported"), Code.UNSUPPORTED_FEATURE),
        (refused("Incorrect API key provided", 400), Code.AUTH),
        (refused("engine overloaded", 429), Code.OVERLOADED),
        (answered(400, {"detail": [{"loc": ["body", "seed"], "msg": "extra_forbidden"}]}), Code.UNSUPPORTED_PARAMETER),
        (
            answered(400, [{"error": {"message": "API key not valid", "status": "x", "code": "invalid_api_key"}}]),
            Code.AUTH,
        ),
    ],
)
def test_error_bodies_that_are_more_specific_than_the_status(error: ProviderError, code: Code) -> None:
    assert (error.code, error.retryable) == (code, code is Code.OVERLOADED)


@pytest.mark.parametrize(
    ("event", "code", "retryable"),
    [
        ({"error": {"type": "overloaded_error", "message": "Overloaded"}}, Code.OVERLOADED, True),
        ({"error": {"type": "rate_limit_error", "message": "slow down"}}, Code.RATE_LIMIT, True),
        ({"error": {"type": "invalid_request_error", "message": "bad"}}, Code.INVALID_REQUEST, False),
        ({"error": {"code": 502, "message": "upstream"}}, Code.SERVER_ERROR, True),
        ({"error": {"code": "429", "message": "upstream"}}, Code.RATE_LIMIT, True),
        ({"error": "boom"}, Code.SERVER_ERROR, True),
        ({"error": True}, Code.SERVER_ERROR, True),
        ({"object": "error", "message": "m", "code": 400}, Code.INVALID_REQUEST, False),
    ],
)
def test_failures_inside_a_stream(event: object, code: Code, retryable: bool) -> None:
    error = make_event_error(json.dumps(event).encode(), SPEAKER)
    assert (error.code, error.retryable, error.status) == (code, retryable, 0)


# -- waiting -------------------------------------------------------------------------------------------------------

NOW = "Fri, 27 Nov 2026 12:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "86400"}, 86400.0),
        ({"retry-after": "Fri, 27 Nov 2026 12:00:30 GMT", "date": NOW}, 30.0),
        ({"retry-after": "Fri, 27 Nov 2026 11:00:00 GMT", "date": NOW}, 0.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after-ms": "inf"}, None),
        ({}, None),
    ],
)
def test_case_P_24_the_retry_delay(headers: dict[str, str], seconds: float | None) -> None:
    assert answered(429, "", headers).retry_after == seconds


@pytest.mark.parametrize(
    ("status", "advice", "retryable"),
    [(500, "false", False), (400, "true", True), (402, "true", False), (500, "x", True)],
)
def test_the_backend_may_state_whether_to_retry(status: int, advice: str, retryable: bool) -> None:
    assert answered(status, "", {"x-should-retry": advice}).retryable is retryable


# -- the sentence --------------------------------------------------------------------------------------------------


def test_the_message_names_provider_status_and_the_backends_text() -> None:
    error = refused("Rate limit reached", 429)
    assert error.message == "acme is rate limiting requests (HTTP 429): Rate limit reached"
    assert str(error) == error.message
    assert "acme rejected the API key (HTTP 401): no. Check apiKeyEnv" in refused("no", 401).message
    assert "upstream says so" in refused("Provider returned error", metadata={"raw": "upstream says so"}).message
    assert "https://x/v1; set that URL as baseUrl" in answered(308, "", {"location": "https://x/v1"}).message


def test_the_key_is_never_shown() -> None:
    error = refused("Incorrect API key provided: sk-secret-1.", 401)
    assert "sk-secret-1" not in error.message
    assert "sk-secret-1" not in make_event_error(b'{"error":"bad sk-secret-1"}', SPEAKER).message
    assert "sk-secret-1" not in repr(SPEAKER)


def test_credentials_in_headers_are_never_shown() -> None:
    headers = {"Authorization": "Bearer sk-secret-22", "X-Gateway-Token": "t0ken-of-it", "X-Title": "notebook"}
    speaker = make_backend("acme", "sk-secret-2", headers)
    body = b"{'Authorization': 'Bearer sk-secret-22', 'key': 'sk-secret-2', 't': 't0ken-of-it'} notebook"
    said = make_response_error(ErrorResponse(401, {}, body), speaker).message
    assert "{'Authorization': 'Bearer [key]', 'key': '[key]', 't': '[key]'} notebook" in said
    assert "secret" not in repr(speaker)


def test_a_placeholder_of_a_key_does_not_garble_the_text() -> None:
    assert (
        "tokens"
        in make_response_error(ErrorResponse(400, {}, b'{"error":"too many tokens"}'), Backend("acme", "k")).message
    )


@given(st.text(), st.sampled_from([400, 500]))
def test_the_text_is_one_bounded_line(text: str, status: int) -> None:
    message = refused(text, status).message
    assert message.isprintable()
    assert len(message) < MAX_TEXT_CHARACTERS + 200


@given(
    st.integers(300, 599),
    st.one_of(
        st.binary(max_size=30),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=9),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["error", "message", "code", "type", "details", "violations", "metadata", "n_ctx"]),
                    inner,
                )
            ),
        ).map(lambda value: json.dumps(value).encode()),
    ),
)
def test_no_body_raises(status: int, body: bytes) -> None:
    assert make_response_error(ErrorResponse(status, {}, body), SPEAKER).message.startswith("acme ")
    assert make_event_error(body, SPEAKER).message.startswith("acme ")


def test_a_deeply_nested_body_is_just_text() -> None:
    assert answered(400, "[" * 100_000).code is Code.INVALID_REQUEST


@pytest.mark.parametrize("size", ["99999999999999999999999999", "true", "-1", "0", "2147483649"])
def test_an_implausible_window_is_ignored(size: str) -> None:
    error = refused("request exceeds the available context size", n_ctx=json.loads(size))
    assert (error.code, error.context_window) == (Code.CONTEXT_OVERFLOW, 0)
    assert type(error.context_window) is int


def test_an_implausible_window_in_text_is_ignored() -> None:
    assert answered(400, {"error": {"message": "maximum context length is 999999999999 tokens"}}).context_window == 0


@pytest.mark.parametrize(
    ("word", "code"),
    [("image_url", Code.UNSUPPORTED_FEATURE), (f"image{'x' * 41}", Code.INVALID_REQUEST)],
    ids=["a word", "longer than a word"],
)
def test_error_patterns_match_in_linear_time(word: str, code: Code) -> None:
    assert refused(f"{word} is not supported").code is code


@pytest.mark.parametrize("place", ["message", "type", "code"])
def test_a_nested_error_of_any_depth_is_an_error(place: str) -> None:
    for depth in range(800, 1_050):
        nested = '{"a":' * depth + "1" + "}" * depth
        answer = ErrorResponse(400, {}, f'{{"error":{{"{place}":{nested}}}}}'.encode())
        assert make_response_error(answer, Backend("here")).code is Code.INVALID_REQUEST
