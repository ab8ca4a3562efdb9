"""Request fields that a server refused or required, learned from its errors."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Literal, cast

from yarrow.errors import Code, ProviderError
from yarrow.message import Image, Message, Role
from yarrow.provider.body import Body
from yarrow.provider.call_pairs import make_id_mapper
from yarrow.provider.chat_completions.opaque_fields import CALL_FIELDS, MESSAGE_FIELDS

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
_FIELD_CODES = frozenset({Code.UNSUPPORTED_PARAMETER, Code.INVALID_REQUEST})
_IMAGE_CODES = _FIELD_CODES | {Code.UNSUPPORTED_FEATURE, Code.REQUEST_TOO_LARGE}


class LearnedRefusals:
    """Fields and images that one server refused; a request adds at most one field, or its refused images."""

    def __init__(self) -> None:
        self._fields: set[str] = set()
        self._images: set[int] = set()
        self._takes_marks = True

    def takes_image(self, image: Image) -> bool:
        """Return whether an image has not been refused so far."""
        return hash(image.data) not in self._images

    def apply(self, body: Body) -> Body:
        """Return the body without refused fields; a refused token limit is first sent under its other name."""
        if not self._takes_marks:
            body = body | {"messages": [_drop_cache_marks(message) for message in body["messages"]]}
        if not self._fields:
            return body
        kept: Body = {}
        for name, value in body.items():
            other = _ALTERNATIVE_NAMES.get(name, name)
            if name not in self._fields:
                kept[name] = value
            elif other not in self._fields:
                kept[other] = value
        kept["messages"] = [self._drop_fields(message) for message in cast("list[dict[str, Any]]", body["messages"])]
        return kept

    def _drop_fields(self, message: dict[str, Any]) -> dict[str, Any]:
        refused = self._fields.intersection(_OPTIONAL_MESSAGE_FIELDS)
        message = {name: value for name, value in message.items() if name not in refused}
        if "tool_calls" in message and not refused.isdisjoint(CALL_FIELDS):
            calls = [
                {name: value for name, value in call.items() if name not in refused} for call in message["tool_calls"]
            ]
            message["tool_calls"] = calls
        return message

    def learn(self, error: ProviderError, sent: Body) -> bool:
        """Return whether the error names an optional field of the sent body; the field is omitted from now on."""
        if error.status not in (400, 422) or error.code not in _FIELD_CODES:
            return False
        if self._takes_marks and "cache_control" in error.message:
            self._takes_marks = False
            return True
        held = [*sent["messages"], *(call for message in sent["messages"] for call in message.get("tool_calls", ()))]
        of_messages = {name for one in held for name in one if name in _OPTIONAL_MESSAGE_FIELDS}
        present = [name for name in _OPTIONAL_FIELDS if name in sent] + sorted(of_messages)
        places = {name: found.start() for name in present if (found := re.search(rf"\b{name}\b", error.message))}
        if not places:
            return False
        self._fields.add(min(places, key=lambda name: places[name]))
        return True

    def learn_images(self, error: ProviderError, messages: Sequence[Message]) -> bool:
        """Return whether the error is about images of the history; a note replaces them from now on.

        Images that the user sends with this very request are not dropped silently: for those it stays an error.
        """
        if error.status not in (400, 413, 415, 422, 500) or error.code not in _IMAGE_CODES | {Code.SERVER_ERROR}:
            return False
        if "image" not in error.message.lower() and error.code is not Code.REQUEST_TOO_LARGE:
            return False
        last = len(messages) - 1
        older = {
            hash(image.data)
            for position, message in enumerate(messages)
            if not (position == last and message.role is Role.USER)
            for image in message.images
        }
        if older <= self._images:
            return False
        self._images |= older
        return True


def _drop_cache_marks(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without cache marks; content that is a single text becomes a string again."""
    content = message["content"]
    if not isinstance(content, list):
        return message
    marked = cast("list[dict[str, Any]]", content)
    parts = [{name: value for name, value in part.items() if name != "cache_control"} for part in marked]
    is_text = len(parts) == 1 and parts[0].get("type") == "text"
    return message | {"content": parts[0]["text"] if is_text else parts}


IdForm = Literal["any", "short", "nine"]
"""Call ids that a server accepts: any, those of up to 40 characters, or only those of nine letters and digits."""

_FORM_PATTERNS: dict[IdForm, str] = {"any": r"(?s).+", "short": r"(?s).{1,40}", "nine": r"[a-zA-Z0-9]{9}"}
_LENGTH = 9


def rewrite_ids(body: Body, form: IdForm) -> Body:
    """Return the body with every call id in this form; a valid id stays unless an earlier call took it.

    Ids depend only on earlier messages, so a longer history keeps the ids of a shorter one.
    """
    if form == "any":
        return body
    legal = make_id_mapper(partial(_derive_ids, _FORM_PATTERNS[form]))
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
_REQUIREMENT_CODES = (Code.INVALID_REQUEST, Code.UNSUPPORTED_PARAMETER, Code.SERVER_ERROR)


class LearnedRequirements:
    """Requirements of one server for the messages of a request; a request adds at most one."""

    def __init__(self, host: str = "") -> None:
        self._thinking_field = _THINKING_FIELDS.get(host, "")
        self._ids: IdForm = _ID_FORMS.get(host, "any")
        self._declares_tools = False

    def apply(self, body: Body) -> Body:
        """Return the body with the requirements met."""
        body = rewrite_ids(body, self._ids)
        if self._declares_tools and "tools" not in body:
            body = _declare_tools(body)
        if not self._thinking_field:
            return body
        messages = [
            {self._thinking_field: ""} | message if "tool_calls" in message else message for message in body["messages"]
        ]
        return body | {"messages": messages}

    def is_about(self, error: ProviderError) -> bool:
        """Return whether the error names something that the server misses, rather than something that it refuses."""
        texts = (_MISSING_FIELD, _MISSING_TOOLS, _NINE_CHARACTER_IDS, _SHORT_IDS)
        about_messages = error.status in (400, 422, 500) and error.code in _REQUIREMENT_CODES
        return about_messages and any(re.search(text, error.message) for text in texts)

    def learn(self, error: ProviderError) -> bool:
        """Return whether the error states a new requirement; it is met from now on."""
        if not self.is_about(error):
            return False
        before = (self._thinking_field, self._ids, self._declares_tools)
        if wanted := re.search(_MISSING_FIELD, error.message):
            self._thinking_field = next(filter(None, wanted.groups())).lower()
        elif re.search(_MISSING_TOOLS, error.message):
            self._declares_tools = True
        else:
            self._ids = "nine" if re.search(_NINE_CHARACTER_IDS, error.message) else "short"
        return (self._thinking_field, self._ids, self._declares_tools) != before


def _declare_tools(body: Body) -> Body:
    """Return the body with the tools that its history calls declared, but with calls to them disabled."""
    calls = [call for message in body["messages"] for call in message.get("tool_calls", ())]
    names = dict.fromkeys(call["function"]["name"] for call in calls)
    if not names:
        return body
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in names]
    return body | {"tools": tools, "tool_choice": "none"}
