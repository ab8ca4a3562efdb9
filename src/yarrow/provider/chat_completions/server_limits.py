"""Limits of servers with chat completions: fields that they refuse, and forms of messages that they require."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from hashlib import sha256
from typing import Any, Literal, cast

from yarrow.errors import Code, ProviderError
from yarrow.provider.call_ids import IdMapper
from yarrow.provider.chat_completions.chunk import CALL_FIELDS, MESSAGE_FIELDS
from yarrow.provider.learned_limits import NO_LIMITS, REFUSED_FIELD_CODES, LimitPattern, Limits, SentRequest
from yarrow.provider.request_body import Body
from yarrow.provider.turn_order import ORDER_PATTERN, TURN_ORDER, order_turns

_OPTIONAL_FIELDS = (
    "temperature",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "reasoning_effort",
    "tool_choice",
    "chat_template_kwargs",
)
_OPTIONAL_MESSAGE_FIELDS = ("reasoning_content", "reasoning", "reasoning_text", *MESSAGE_FIELDS)
_ALTERNATIVE_NAMES = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_CACHE_MARK = "cache_control"


def apply_chat_limits(body: Body, limits: Limits) -> Body:
    """Return the body in the required forms and without the refused parts."""
    if form := limits.required.get(TURN_ORDER):
        body = order_turns(body, form)
    return _omit_refused(_meet_requirements(body, limits.required), limits.refused)


# -- what a server refuses -----------------------------------------------------------------------------------------


def _omit_refused(body: Body, refused: frozenset[str | int]) -> Body:
    """Return the body without refused fields; a refused token limit is first sent under its other name."""
    if not refused:
        return body
    kept: Body = {}
    for name, value in body.items():
        other = _ALTERNATIVE_NAMES.get(name, name)
        if name not in refused:
            kept[name] = value
        elif other not in refused:
            kept[other] = value
    if _CACHE_MARK in refused:
        kept["messages"] = [_drop_cache_marks(message) for message in kept["messages"]]
    if dropped := refused.intersection(_OPTIONAL_MESSAGE_FIELDS):
        kept["messages"] = [_drop_fields(message, dropped) for message in kept["messages"]]
    return kept


def _drop_fields(message: Body, dropped: frozenset[str | int]) -> Body:
    message = {name: value for name, value in message.items() if name not in dropped}
    if "tool_calls" in message and not dropped.isdisjoint(CALL_FIELDS):
        calls = [{name: value for name, value in call.items() if name not in dropped} for call in message["tool_calls"]]
        message["tool_calls"] = calls
    return message


def _drop_cache_marks(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without cache marks; content that is a single text becomes a string again."""
    content = message["content"]
    if not isinstance(content, list):
        return message
    marked = cast("list[dict[str, Any]]", content)
    parts = [{name: value for name, value in part.items() if name != _CACHE_MARK} for part in marked]
    is_text = len(parts) == 1 and parts[0].get("type") == "text"
    return message | {"content": parts[0]["text"] if is_text else parts}


def _find_refused_field(error: ProviderError, sent: SentRequest) -> Limits:
    """Return the first optional field of the sent body that the error names."""
    if find_requirement(error, sent) != NO_LIMITS:
        return NO_LIMITS
    if _CACHE_MARK in error.message and _CACHE_MARK not in sent.limits.refused:
        return Limits(frozenset({_CACHE_MARK}))
    body = sent.body
    holders = [*body["messages"], *(call for message in body["messages"] for call in message.get("tool_calls", ()))]
    of_messages = {name for one in holders for name in one if name in _OPTIONAL_MESSAGE_FIELDS}
    present = [name for name in _OPTIONAL_FIELDS if name in body] + sorted(of_messages)
    positions = {name: found.start() for name in present if (found := re.search(rf"\b{name}\b", error.message))}
    return Limits(frozenset({min(positions, key=lambda name: positions[name])})) if positions else NO_LIMITS


# -- what a server requires ----------------------------------------------------------------------------------------

_THINKING_FIELD, _CALL_IDS, _TOOLS = "thinking field", "call ids", "tools"
"""Parts of a request that servers require in some form."""


def _meet_requirements(body: Body, required: Mapping[str, str]) -> Body:
    if form := required.get(_CALL_IDS):
        body = rewrite_ids(body, cast("IdForm", form))
    if _TOOLS in required and "tools" not in body:
        body = _declare_tools(body)
    field = required.get(_THINKING_FIELD)
    if not field:
        return body
    messages = [{field: ""} | message if "tool_calls" in message else message for message in body["messages"]]
    return body | {"messages": messages}


def _declare_tools(body: Body) -> Body:
    """Return the body with the tools that its history calls declared, but with calls to them disabled."""
    calls = [call for message in body["messages"] for call in message.get("tool_calls", ())]
    names = dict.fromkeys(call["function"]["name"] for call in calls)
    if not names:
        return body
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in names]
    return body | {"tools": tools, "tool_choice": "none"}


IdForm = Literal["short", "nine"]
"""Call ids that a server accepts: those of up to 40 characters, or only those of nine letters and digits."""

_FORM_PATTERNS: dict[IdForm, str] = {"short": r"(?s).{1,40}", "nine": r"[a-zA-Z0-9]{9}"}
_LENGTH = 9


def rewrite_ids(body: Body, form: IdForm) -> Body:
    """Return the body with every call id in this form; a valid id stays unless an earlier call took it.

    Ids depend only on earlier messages, so a longer history keeps the ids of a shorter one.
    """
    ids = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
    if len(set(ids)) == len(ids) and all(map(re.compile(_FORM_PATTERNS[form]).fullmatch, ids)):
        return body  # mostly so, and a request may have thousands
    legal = IdMapper(partial(_derive_ids, _FORM_PATTERNS[form]))
    return body | {"messages": [_rewrite_message(message, legal) for message in body["messages"]]}


def _rewrite_message(message: Body, legal: Callable[[str], str]) -> Body:
    if calls := message.get("tool_calls"):
        return message | {"tool_calls": [_rewrite_field(call, "id", legal) for call in calls]}
    return _rewrite_field(message, "tool_call_id", legal) if "tool_call_id" in message else message


def _rewrite_field(fields: dict[str, Any], name: str, legal: Callable[[str], str]) -> dict[str, Any]:
    return fields | {name: legal(fields[name])}


def _derive_ids(form: str, call_id: str) -> Iterator[str]:
    """Yield candidates of this form for an id, endlessly; a valid id comes first, unchanged."""
    chosen = digest = call_id
    while True:
        if re.fullmatch(form, chosen):
            yield chosen
        digest = sha256(digest.encode("utf-8", "surrogatepass")).hexdigest()
        chosen = digest[:_LENGTH]


_THINKING_FIELDS = {"api.deepseek.com": "reasoning_content"}
"""Hosts that, while thinking, require the thinking field on every message with calls, even if it is empty."""
_ID_FORMS: dict[str, IdForm] = {"api.openai.com": "short", "api.mistral.ai": "nine"}
_ORDERED_HOSTS = ("api.mistral.ai", "codestral.mistral.ai")
"""Hosts that refuse a user's message after a result."""
_MISSING_FIELD = re.compile(
    r"\b(reasoning_content|reasoning)\b.{0,80}\bmust be (?:passed back|provided|present|included|sent)"
    r"|(?:missing|requires?)\W{1,3}(?:the |a |field |required |parameter:? ?){0,3}\W{0,2}(reasoning_content)\b"
    r"|\b(reasoning_content)\b\W{0,3}(?:field |parameter )?(?:(?:is|was|are) )?(?:missing|required|field required)",
    re.IGNORECASE,
)
"""Sentences that report a field as missing, not as refused."""
_SHORT_IDS = r"(?s)tool_call.{0,200}maximum length 40\b"
_NINE_CHARACTER_IDS = r"(?si)tool call ids?\b.{0,200}\blength (?:of )?9\b"
"""The vendor's wording, and that of its models' chat templates on other servers, which report an internal error."""
_MISSING_TOOLS = re.compile(
    r"toolconfig field must be defined"  # Bedrock
    r"|`tool_(?:use|calls|result)`.{0,80}\bmust (?:define|include) tools"  # Anthropic
    r"|(?:without|expects the) `?tools=`? param",  # LiteLLM
    re.IGNORECASE | re.DOTALL,
)
"""Refusals of a history with calls in a request that declares no tools."""


def find_host_limits(host: str) -> Limits:
    """Return the requirements of a known host."""
    known = {
        _THINKING_FIELD: _THINKING_FIELDS.get(host, ""),
        _CALL_IDS: _ID_FORMS.get(host, ""),
        TURN_ORDER: "bridged" if host in _ORDERED_HOSTS else "",
    }
    return Limits(required={part: form for part, form in known.items() if form})


def find_requirement(error: ProviderError, _sent: SentRequest) -> Limits:
    """Return the requirement that the error states: something that the server misses, rather than refuses."""
    text = error.message
    if wanted := re.search(_MISSING_FIELD, text):
        return Limits(required={_THINKING_FIELD: next(filter(None, wanted.groups())).lower()})
    if re.search(_MISSING_TOOLS, text):
        return Limits(required={_TOOLS: "declared"})
    if re.search(_NINE_CHARACTER_IDS, text):
        return Limits(required={_CALL_IDS: "nine"})
    return Limits(required={_CALL_IDS: "short"}) if re.search(_SHORT_IDS, text) else NO_LIMITS


CHAT_PATTERNS = (
    ORDER_PATTERN,
    LimitPattern(find_requirement, (400, 422, 500), REFUSED_FIELD_CODES | {Code.SERVER_ERROR}),
    LimitPattern(_find_refused_field, (400, 422), REFUSED_FIELD_CODES),
)
"""Errors that state a limit; a server with images has those about images too."""
