"""Fulfils what one server insists on in messages: known of its host, or learnt from what it refused."""

import re

from yarrow.errors import Code, ProviderError
from yarrow.provider.body import Body
from yarrow.provider.chat_completions.call_id_forms import IdForm, rewrite_ids

_THINKING_FIELDS = {"api.deepseek.com": "reasoning_content"}
"""Hosts that want the thinking field on every message with calls, even empty, while they think."""
_ID_FORMS: dict[str, IdForm] = {"api.openai.com": "short", "api.mistral.ai": "nine"}
_MISSING_FIELD = re.compile(
    r"\b(reasoning_content|reasoning)\b.{0,80}\bmust be (?:passed back|provided|present|included|sent)"
    r"|(?:missing|requires?)\W{1,3}(?:the |a |field |required |parameter:? ?){0,3}\W{0,2}(reasoning_content)\b"
    r"|\b(reasoning_content)\b\W{0,3}(?:field |parameter )?(?:(?:is|was|are) )?(?:missing|required|field required)",
    re.IGNORECASE,
)
"""Sentences that name the field as missing, not as refused."""
_SHORT_IDS = r"(?s)tool_call.{0,200}maximum length 40\b"
_NINE_CHARACTER_IDS = r"(?si)tool call ids?\b.{0,200}\blength (?:of )?9\b"
"""What the vendor says, and what the chat templates of its models say on other servers, there as an internal error."""
_MISSING_TOOLS = re.compile(
    r"toolconfig field must be defined"  # Bedrock
    r"|`tool_(?:use|calls|result)`.{0,80}\bmust (?:define|include) tools"  # Anthropic
    r"|(?:without|expects the) `?tools=`? param",  # LiteLLM
    re.IGNORECASE | re.DOTALL,
)
"""Refusals of a history with calls in a request that declares no tools."""
_REQUIREMENT_CODES = (Code.INVALID_REQUEST, Code.UNSUPPORTED_PARAMETER, Code.SERVER_ERROR)


class LearnedRequirements:
    """What one server wants in the messages of a request; grows by at most one demand per request."""

    def __init__(self, host: str = "") -> None:
        self._thinking_field = _THINKING_FIELDS.get(host, "")
        self._ids: IdForm = _ID_FORMS.get(host, "any")
        self._declares_tools = False

    def apply(self, body: Body) -> Body:
        """Return the body as the server wants it."""
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
        """Tell whether the error names something that the server misses, and not something that it refuses."""
        texts = (_MISSING_FIELD, _MISSING_TOOLS, _NINE_CHARACTER_IDS, _SHORT_IDS)
        about_messages = error.status in (400, 422, 500) and error.code in _REQUIREMENT_CODES
        return about_messages and any(re.search(text, error.message) for text in texts)

    def learn(self, error: ProviderError) -> bool:
        """Tell whether the error makes a demand that was not known; it is met from now on."""
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
    """Return the body with the tools that its history calls, of which the model may call none."""
    calls = [call for message in body["messages"] for call in message.get("tool_calls", ())]
    names = dict.fromkeys(call["function"]["name"] for call in calls)
    if not names:
        return body
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in names]
    return body | {"tools": tools, "tool_choice": "none"}
