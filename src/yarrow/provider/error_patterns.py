"""Tables that classify a backend's errors; a new wording is a new row."""

from msgspec import Struct

from yarrow.errors import Code


class ErrorPattern(Struct, frozen=True):
    """A row: `pattern` is searched in the lower-cased type, code, details and text of an error.

    `unless` is a pattern that excludes the row; `statuses` are the HTTP statuses it applies to, all if empty.
    """

    code: Code
    pattern: str
    unless: str = ""
    statuses: tuple[int, ...] = ()


_PER_TIME = r"tokens per min|per-minute|\btpm\b|rate.?limit|string_above_max_length"

_OVERFLOW = "|".join(
    (
        r"exceed_context_size|context_length_exceeded|model_context_window_exceeded",
        r"prompt is too long|input is too long|prompt is longer than the context|exceed context limit",
        r"maximum context length|model'?s context length|maximum prompt length|input length exceeds the context",
        r"exceeds? (the |model )?(context window|available context size|max context size)",
        r"context size has been exceeded|larger than the max(imum)? context size|greater than the context length",
        r"input tokens? (count )?.{0,20}exceeds?|exceeded model token limit|context window exceeds limit",
        r"reduce the length of the (messages|prompt|input)|too large for model with \d+ maximum context",
        r"exceeds the limit of \d+|current length is \d+ while limit is",
        r"context the overflows|(longer than|exceeds) (the )?max(imum)? model len|\+ .max_new_tokens. must be <= \d",
        r"context ?window ?exceeded",  # LiteLLM, before it asks a backend
        r"range of input length should be|input length \d+ exceeds the maximum length",  # DashScope, Volcengine
        r"\bprompt exceeds max(imum)? length|prompt is too long: \d+",  # z.ai, Fireworks
        r"tokens in the prompt cannot exceed|input tokens \d+ cannot exceed",  # Cohere, watsonx
        r"input characters is \d+",  # Qianfan
    )
)

_QUOTA = "|".join(
    (
        r"insufficient_quota|billing_hard_limit_reached|credit_balance_exhausted|spend_limit_(exceeded|reached)",
        r"organization_usage_limit_exceeded|exceeded_current_quota_error|billing_error|requests?perday|tokens?perday",
        r"credit balance is too low|insufficient (credits?|balance|funds)",
    )
)

_CONTENT = "|".join(
    (
        r"content_filter|responsibleaipolicyviolation|content management policy",  # Azure
        r"content_policy_violation|violat(es?|ing) (our|the) (usage|content) polic(y|ies)",  # OpenAI
        r"code=(invalid_prompt|\w+_policy(_violation)?)\b",  # OpenAI's Responses API
        r"data_?inspection_?failed|inappropriate content",  # DashScope
        r"content exists risk|considered high risk",  # DeepSeek, Moonshot
        r"code=(1301|1026)\b",  # z.ai, MiniMax
    )
)

_UNPARSED_CALL = "|".join(
    (
        r"tool_use_failed|failed to call a function|tool call validation failed",  # Groq
        r"failed to parse (tool|function) call",  # llama.cpp, vLLM
    )
)

ERROR_PATTERNS = (
    ErrorPattern(Code.MALFORMED_TOOL_CALL, _UNPARSED_CALL, statuses=(0, 400, 422, 500)),
    ErrorPattern(Code.CONTENT_FILTER, _CONTENT, statuses=(0, 400, 403, 422, 451)),
    ErrorPattern(Code.CONTEXT_OVERFLOW, _OVERFLOW, unless=_PER_TIME, statuses=(0, 400, 413, 422, 500, 502, 503)),
    ErrorPattern(Code.QUOTA, _QUOTA),
    ErrorPattern(Code.QUOTA, r"code=(1113|130[89]|131[013-9]|1320)\b", statuses=(429,)),
    ErrorPattern(
        Code.AUTH, r"api_key_invalid|invalid[ _]api[ _]key|incorrect api key|authentication_error|permission_error"
    ),
    ErrorPattern(
        Code.UNSUPPORTED_FEATURE, r"does not support (thinking|tools?|images?|vision|function)|not_supported_error"
    ),
    ErrorPattern(Code.UNSUPPORTED_FEATURE, r"(image|vision|multimodal)\S{0,40} (input )?(is|are) not supported"),
    ErrorPattern(
        Code.UNSUPPORTED_PARAMETER,
        r"unsupported[ _](parameter|value)|extra inputs are not permitted|extra_forbidden"
        r"|unrecognized request argument|unknown (parameter|field|name)|is not supported for this model",
        statuses=(0, 400, 422),
    ),
    ErrorPattern(
        Code.OVERLOADED,
        r"overloaded|at capacity|server busy|unavailable_error|loading model|insufficient_system_resource",
        statuses=(0, 429, 500, 502, 503, 504, 529),
    ),
    ErrorPattern(Code.RATE_LIMIT, r"rate_limit|resource_exhausted|too many requests", statuses=(0,)),
)
"""Rows in order of precedence; the first match decides. Status 0 is a failure inside a stream."""

CODES_BY_STATUS = {
    401: Code.AUTH,
    402: Code.QUOTA,
    403: Code.AUTH,
    404: Code.NOT_FOUND,
    408: Code.SERVER_ERROR,
    413: Code.REQUEST_TOO_LARGE,
    425: Code.SERVER_ERROR,
    429: Code.RATE_LIMIT,
    501: Code.UNSUPPORTED_FEATURE,
    503: Code.OVERLOADED,
    529: Code.OVERLOADED,
}
"""Error code of a status without a matching pattern; other 4xx are INVALID_REQUEST, the rest SERVER_ERROR."""

STATUS_BY_TYPE = {
    "invalid_request_error": 400,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""HTTP status implied by an error type if a failure has no number."""

RETRIED_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
RETRYABLE_CODES = frozenset({Code.OVERLOADED, Code.RATE_LIMIT, Code.SERVER_ERROR, Code.MALFORMED_TOOL_CALL})
"""Codes that are retried."""
FINAL_CODES = frozenset(
    {
        *(Code.CONTEXT_OVERFLOW, Code.QUOTA, Code.AUTH, Code.CONTENT_FILTER),
        *(Code.UNSUPPORTED_FEATURE, Code.UNSUPPORTED_PARAMETER),
    }
)
"""Codes that are never retried with the same request, whatever the status."""

_NUMBER = r"(\d[\d,]{0,11})"
WINDOW_PATTERNS = (
    rf"context limit: \d+ \+ \d+ > {_NUMBER}",
    rf"tokens > {_NUMBER} maximum",
    rf"maximum (?:context|prompt) length (?:is|of) {_NUMBER}",
    rf"available context size \({_NUMBER}",
    rf"tokens allowed \({_NUMBER}",
    rf"with {_NUMBER} maximum context",
    rf"while limit is {_NUMBER}",
    rf"exceeds the limit of {_NUMBER}",
    rf"context (?:window|length) of (?:only )?{_NUMBER}",
    rf"context length \({_NUMBER}",
    rf"n_ctx: {_NUMBER}",
    rf"(?:configured limit of|model token limit:) {_NUMBER}",
    rf"model len(?:gth)?(?: of)? {_NUMBER}",
    rf"max_new_tokens. must be <= {_NUMBER}",
    rf"max input tokens={_NUMBER}",
    rf"range of input length should be \[\d+, {_NUMBER}\]",
    rf"exceeds the maximum length {_NUMBER}",
    rf"cannot exceed (?:the total tokens limit )?{_NUMBER}",
)
"""Patterns that find the true window, in tokens, in the text of an overflow."""

_KEY = "Check apiKeyEnv or apiKeyCommand in your settings."

CODE_WORDING: dict[Code, tuple[str, str]] = {
    Code.OVERLOADED: ("is overloaded or still loading", ""),
    Code.RATE_LIMIT: ("is rate limiting requests", ""),
    Code.QUOTA: ("reports that the account has no quota left", "Add credit or choose another provider."),
    Code.SERVER_ERROR: ("failed", ""),
    Code.CONTEXT_OVERFLOW: ("rejected the request: the conversation exceeds its context window", ""),
    Code.INVALID_REQUEST: ("rejected the request", ""),
    Code.AUTH: ("rejected the API key", _KEY),
    Code.NOT_FOUND: ("cannot find the model or the address", "Check the model (--list-models) and baseUrl."),
    Code.REQUEST_TOO_LARGE: (
        "rejected the request because it is too large",
        "Send less at once, or raise the limit of the server or its proxy.",
    ),
    Code.UNSUPPORTED_PARAMETER: ("rejected a field of the request", ""),
    Code.UNSUPPORTED_FEATURE: ("does not support this request", ""),
    Code.CONTENT_FILTER: (
        "blocked the request with its content filter",
        "Rephrase the prompt, or branch from an earlier message.",
    ),
    Code.MALFORMED_TOOL_CALL: ("could not parse the model's tool call", ""),
}
"""Per code: what happened, and what the user can do about it, if anything.

If a refused field is searched for in the sentence, the sentence must not name one itself.
"""

NO_KEY_WORDING = (
    "requires an API key",
    "No key was sent in a header: set providers.{name}.apiKeyEnv (a vendor's variable is used only at its address).",
)
"""The wording of AUTH if the request had no key: what happened, and what sends one to the provider `name`."""

EMPTY_REFUSAL_WORDING = "rejected the request without a reason (HTTP 400); it may be too large"
