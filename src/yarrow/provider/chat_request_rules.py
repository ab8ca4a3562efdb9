"""Public rules of chat-completions requests, as strict as the strictest server."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

from yarrow.provider.chat_completions.chunk import CALL_FIELDS, MESSAGE_FIELDS
from yarrow.provider.stream_framing import is_json_object

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FIELDS = frozenset(
    {
        *(
            "model",
            "messages",
            "tools",
            "tool_choice",
            "parallel_tool_calls",
            "stream",
            "stream_options",
            "stop",
            "seed",
        ),
        *("temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "reasoning_effort", "store"),
        *("prompt_cache_key", "thinking", "enable_thinking", "reasoning", "chat_template_kwargs"),
    }
)
"""Fields that at least one server knows; strict servers refuse a request with any other."""
_SPOKEN = {
    "system": frozenset({"role", "content"}),
    "user": frozenset({"role", "content"}),
    "assistant": frozenset(
        {"role", "content", "tool_calls", "reasoning_content", "reasoning", "reasoning_text", *MESSAGE_FIELDS}
    ),
    "tool": frozenset({"role", "content", "tool_call_id"}),
}
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_IMAGE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")


def violations(body: Mapping[str, Any]) -> list[str]:
    """Return the violations in the body of a request, one sentence each; empty if it is valid."""
    return [*_head(body), *_tools(body), *_messages(body)]


def _head(body: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(body.keys() - _FIELDS):
        yield f"{name} is no field of a request"
    if not _text(body.get("model")):
        yield "model is not a name"
    if body.get("stream") is not True:
        yield "stream is not true"
    temperature = body.get("temperature", 0)
    if not isinstance(temperature, int | float) or not 0 <= temperature <= 2:
        yield f"temperature {temperature!r} is not between 0 and 2"
    if body.get("reasoning_effort", "none") not in _EFFORTS:
        yield f"reasoning_effort {body['reasoning_effort']!r} is none of {', '.join(_EFFORTS)}"
    for name in ("stream_options", "chat_template_kwargs"):
        if not isinstance(body.get(name, {}), dict):
            yield f"{name} is no object"
    for name in ("max_tokens", "max_completion_tokens"):
        if name in body and not (isinstance(body[name], int) and body[name] > 0):
            yield f"{name} is not a positive integer"
    if "max_tokens" in body and "max_completion_tokens" in body:
        yield "max_tokens and max_completion_tokens are both set"


def _tools(body: Mapping[str, Any]) -> Iterator[str]:
    if "tool_choice" in body and "tools" not in body:
        yield "tool_choice is set without tools"
    if "tools" not in body:
        return
    tools = body["tools"]
    if not _list(tools):
        yield "tools is not a list with at least one tool"
        return
    names: set[str] = set()
    for position, tool in enumerate(_dicts(tools)):
        function = _dict(tool.get("function"))
        name = function.get("name")
        if tool.get("type") != "function" or not _named(name):
            yield f"tools[{position}] is not a function with a name of 1 to 64 letters, digits, _ and -"
        elif name in names:
            yield f"tools[{position}]: a second tool is called {name}"
        names.add(str(name))
        if not isinstance(function.get("description", ""), str):
            yield f"tools[{position}]: the description is no text"
        if _dict(function.get("parameters", {"type": "object"})).get("type") != "object":
            yield f"tools[{position}]: the parameters are not a schema of type object"


def _messages(body: Mapping[str, Any]) -> Iterator[str]:
    messages = list(_dicts(body.get("messages")))
    if not messages:
        yield "messages is not a list with at least one message"
        return
    for position, message in enumerate(messages):
        for problem in _message(message):
            yield f"messages[{position}]: {problem}"
    yield from _order([str(message.get("role")) for message in messages])
    yield from _pairs(messages)


def _message(message: Mapping[str, Any]) -> Iterator[str]:
    role, content = message.get("role"), message.get("content")
    if role not in _SPOKEN:
        yield f"the role {role!r} does not exist"
    elif role == "user" and not isinstance(content, str):
        yield from _parts(content)
    elif role == "assistant" and content is None:
        if not message.get("tool_calls"):
            yield "an assistant message has neither content nor calls"
    elif not _text(content) and not _texts(content):
        yield f"the content of the {role} message is no text, or blank"
    if role == "tool" and not _text(message.get("tool_call_id")):
        yield "the result names no call"
    for name in sorted(message.keys() - _SPOKEN.get(str(role), message.keys())):
        yield f"a {role} message has {name.replace('_', ' ')}, which is no field of it"
    for name in ("reasoning_content", "reasoning", "reasoning_text"):
        if not isinstance(message.get(name, ""), str):
            yield f"{name} is no text"
    if "reasoning_details" in message and not _list(message["reasoning_details"]):
        yield "reasoning_details is not a list with at least one entry"
    if "tool_calls" in message:
        yield from _calls(message["tool_calls"])


def _parts(content: object) -> Iterator[str]:
    parts = list(_dicts(content))
    if not parts:
        yield "the content of the user message is neither a text nor a list of parts"
    for part in parts:
        if part.get("type") == "text":
            if not _text(part.get("text")):
                yield "a text part is blank"
        elif part.get("type") == "image_url":
            url = _dict(part.get("image_url")).get("url")
            if not isinstance(url, str) or not _IMAGE.fullmatch(url):
                yield "an image part holds no data URL of an image"
        else:
            yield f"a part of type {part.get('type')!r} does not exist"


def _calls(calls: object) -> Iterator[str]:
    if not _list(calls):
        yield "tool_calls is not a list with at least one call"
    for call in _dicts(calls):
        function = _dict(call.get("function"))
        for name in sorted({*call, *function} - {"id", "type", "function", "name", "arguments", *CALL_FIELDS}):
            yield f"{name} is no field of a call"
        if not _text(call.get("id")):
            yield "a call has no id"
        if call.get("type") != "function":
            yield "a call is not of type function"
        if not _named(function.get("name")):
            yield f"a call names {function.get('name')!r}, which no tool can be called"
        arguments = function.get("arguments")
        if not isinstance(arguments, str) or not is_json_object(arguments):
            yield "the arguments of a call are not the text of a JSON object"


def _order(roles: Sequence[str]) -> Iterator[str]:
    if "system" in roles[1:]:
        yield "a system message does not lead"
    spoken = [role for role in roles if role != "system"]
    if not spoken or spoken[0] != "user":
        yield "the conversation does not begin with the user"
    if spoken and spoken[-1] == "assistant":
        yield "the conversation ends with the assistant"
    for before, after in pairwise(spoken):
        if before == after and before != "tool":
            yield f"two {after} messages follow each other"


def _pairs(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    seen: set[str] = set()
    due: list[str] = []
    for position, message in enumerate(messages):
        if message.get("role") == "tool":
            answered = str(message.get("tool_call_id"))
            if not due or due.pop(0) != answered:
                yield f"messages[{position}]: the result for {answered} answers no call, or is out of order"
            continue
        if due:
            yield f"messages[{position}]: the calls {', '.join(due)} have no result before it"
        due = [str(call.get("id")) for call in _dicts(message.get("tool_calls"))]
        for call_id in due:
            if call_id in seen:
                yield f"messages[{position}]: a second call has the id {call_id}"
            seen.add(call_id)
    if due:
        yield f"the calls {', '.join(due)} have no result"


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _texts(value: object) -> bool:
    """Return whether content is a list of text parts, which every role may have."""
    parts = list(_dicts(value))
    return bool(parts) and all(part.get("type") == "text" and _text(part.get("text")) for part in parts)


def _named(value: object) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _list(value: object) -> bool:
    return isinstance(value, list) and bool(cast("list[Any]", value))


def _dict(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _dicts(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of a list as objects; any other entry becomes an empty one, which violates every rule."""
    for entry in cast("list[Any]", value) if isinstance(value, list) else []:
        yield _dict(entry)
