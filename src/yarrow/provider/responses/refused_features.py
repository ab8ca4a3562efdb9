"""Limits of servers with the Responses API: reasoning, fields and efforts that they refuse."""

import re

from yarrow.errors import Code, ProviderError
from yarrow.provider.learned_limits import (
    NO_LIMITS,
    REFUSED_FEATURE_CODES,
    LimitPattern,
    Limits,
    SentRequest,
)
from yarrow.provider.request_body import Body
from yarrow.provider.turn_order import ORDER_PATTERN, TURN_ORDER, order_turns

REASONING_ITEMS = "reasoning items"
"""Name of the limit of a server that takes no reasoning back."""
_EFFORT = "effort"
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_REFUSED_REASONING = re.compile(
    "|".join(
        (
            r"without its required (following item|'?reasoning'? item)",  # OpenAI
            r"items? with id '?rs_|items are not persisted|\bnot persisted\b",  # OpenAI
            r"input\[\d+\]\.summary",  # OpenAI
            r"item\['content'\]",  # llama.cpp
        )
    )
)
_REFUSED_CONTENT = re.compile(r"invalid_encrypted_content|encrypted[ _]content.{0,80}could not be (verified|decrypted)")
_SUPPORTED_VALUES = re.compile(r"supported values are:? (.{1,200})")
_FIELDS = {
    "reasoning.summary": r"reasoning\.summary|reasoning summary|reasoning summaries",
    "reasoning.effort": r"reasoning\.effort|reasoning_effort",
    "reasoning": r"'reasoning'|\breasoning\b.{0,20}not support",
    "include": r"\binclude\b|\bencrypted[ _]content\b.{0,20}not support",
    "prompt_cache_key": r"\bprompt_cache_key\b",
    "temperature": r"\btemperature\b",
    "max_output_tokens": r"\bmax_output_tokens\b",
    "tool_choice": r"\btool_choice\b",
    "store": r"'store'",
}
"""Optional fields, and patterns of their names in errors; the first that matches is omitted."""


def apply_responses_limits(body: Body, limits: Limits) -> Body:
    """Return the body with the required turns, with efforts that the model knows, and without the refused fields."""
    if form := limits.required.get(TURN_ORDER):
        body = order_turns(body, form)
    kept = {name: value for name, value in body.items() if name not in limits.refused}
    if "reasoning" not in kept:
        return kept
    reasoning = {name: value for name, value in kept["reasoning"].items() if f"reasoning.{name}" not in limits.refused}
    if (effort := reasoning.get("effort")) and (other := limits.required.get(f"{_EFFORT} {effort}")):
        reasoning["effort"] = other
    return kept | {"reasoning": reasoning}


def _find_refused_reasoning(error: ProviderError, sent: SentRequest) -> Limits:
    """Return all reasoning, or the encrypted contents of this request if only they are refused."""
    text = error.message.lower()
    items = [item for item in sent.body["input"] if item.get("type") == "reasoning"]
    if not items:
        return NO_LIMITS
    if _REFUSED_REASONING.search(text):
        return Limits(frozenset({REASONING_ITEMS}))
    if _REFUSED_CONTENT.search(text):
        return Limits(frozenset(hash(item.get("encrypted_content", "")) for item in items))
    return NO_LIMITS


def _find_supported_effort(error: ProviderError, sent: SentRequest) -> Limits:
    """Return the effort next to the refused one that the error names."""
    text, sent_effort = error.message.lower(), sent.body.get("reasoning", {}).get("effort")
    found = _SUPPORTED_VALUES.search(text)
    if found is None or sent_effort not in _EFFORTS or f"'{sent_effort}'" not in text[: found.start()]:
        return NO_LIMITS
    supported = [effort for effort in _EFFORTS if f"'{effort}'" in found[1]]
    reach = _EFFORTS.index(sent_effort)
    nearest = min(supported, key=lambda effort: abs(_EFFORTS.index(effort) - reach), default="")
    wanted = sent.request.thinking.value
    return Limits(required={f"{_EFFORT} {wanted}": nearest}) if nearest else NO_LIMITS


def _find_refused_field(error: ProviderError, sent: SentRequest) -> Limits:
    text = error.message.lower()
    reasoning = sent.body.get("reasoning", {})
    present = {*sent.body, *(f"reasoning.{name}" for name in reasoning)}
    for name, pattern in _FIELDS.items():
        if name in present and name not in sent.limits.refused and re.search(pattern, text):
            return Limits(frozenset({name}))
    return NO_LIMITS


RESPONSES_PATTERNS = (
    ORDER_PATTERN,
    LimitPattern(
        _find_refused_reasoning,
        (400, 404, 422, 500),
        REFUSED_FEATURE_CODES | {Code.NOT_FOUND, Code.SERVER_ERROR},
        per_model=True,
    ),
    LimitPattern(_find_supported_effort, (400, 422), REFUSED_FEATURE_CODES, per_model=True),
    LimitPattern(_find_refused_field, (400, 422), REFUSED_FEATURE_CODES, per_model=True),
)
"""Refusals of reasoning that is sent back, of an effort, and of fields that not every server or model accepts."""
