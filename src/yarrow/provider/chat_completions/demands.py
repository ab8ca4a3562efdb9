"""Fulfils what one server insists on in messages: known of its host, or learnt from what it refused."""

import re

from yarrow.errors import Code, ProviderError
from yarrow.provider.body import Body
from yarrow.provider.chat_completions.call_ids import Form, with_ids

_THINKING_FIELDS = {"api.deepseek.com": "reasoning_content"}
"""Hosts that want the thinking field on every message with calls, even empty, while they think."""
_ID_FORMS: dict[str, Form] = {"api.openai.com": "short", "api.mistral.ai": "nine"}
_WANTED = re.compile(
    r"\b(reasoning_content|reasoning)\b.{0,80}\bmust be (?:passed back|provided|present|included|sent)"
    r"|(?:missing|requires?)\W{1,3}(?:the |a |field |required |parameter:? ?){0,3}\W{0,2}(reasoning_content)\b"
    r"|\b(reasoning_content)\b\W{0,3}(?:field |parameter )?(?:(?:is|was|are) )?(?:missing|required|field required)",
    re.IGNORECASE,
)
"""Sentences that name the field as missing, not as refused."""
_SHORT = r"(?s)tool_call.{0,200}maximum length 40\b"
_NINE = r"(?si)tool call ids?\b.{0,200}\blength (?:of )?9\b"
"""What the vendor says, and what the chat templates of its models say on other servers, there as an internal error."""
_TOOLS = re.compile(
    r"toolconfig field must be defined"  # Bedrock
    r"|`tool_(?:use|calls|result)`.{0,80}\bmust (?:define|include) tools"  # Anthropic
    r"|(?:without|expects the) `?tools=`? param",  # LiteLLM
    re.IGNORECASE | re.DOTALL,
)
"""Refusals of a history with calls in a request that declares no tools."""
_CODES = (Code.INVALID_REQUEST, Code.UNSUPPORTED_PARAMETER, Code.SERVER_ERROR)


class Demands:
    """What one server wants in the messages of a request; grows by at most one demand per request."""

    def __init__(self, host: str = "") -> None:
        self._field = _THINKING_FIELDS.get(host, "")
        self._ids: Form = _ID_FORMS.get(host, "any")
        self._declares_tools = False

    def apply(self, body: Body) -> Body:
        """Return the body as the server wants it."""
        body = with_ids(body, self._ids)
        if self._declares_tools and "tools" not in body:
            body = _with_tools(body)
        if not self._field:
            return body
        messages = [{self._field: ""} | message if "tool_calls" in message else message for message in body["messages"]]
        return body | {"messages": messages}

    def made_by(self, error: ProviderError) -> bool:
        """Tell whether the error names something that the server misses, and not something that it refuses."""
        texts = (_WANTED, _TOOLS, _NINE, _SHORT)
        about_messages = error.status in (400, 422, 500) and error.code in _CODES
        return about_messages and any(re.search(text, error.message) for text in texts)

    def learn(self, error: ProviderError) -> bool:
        """Tell whether the error makes a demand that was not known; it is met from now on."""
        if not self.made_by(error):
            return False
        before = (self._field, self._ids, self._declares_tools)
        if wanted := re.search(_WANTED, error.message):
            self._field = next(filter(None, wanted.groups())).lower()
        elif re.search(_TOOLS, error.message):
            self._declares_tools = True
        else:
            self._ids = "nine" if re.search(_NINE, error.message) else "short"
        return (self._field, self._ids, self._declares_tools) != before


def _with_tools(body: Body) -> Body:
    """Return the body with the tools that its history calls, of which the model may call none."""
    calls = [call for message in body["messages"] for call in message.get("tool_calls", ())]
    names = dict.fromkeys(call["function"]["name"] for call in calls)
    if not names:
        return body
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in names]
    return body | {"tools": tools, "tool_choice": "none"}
