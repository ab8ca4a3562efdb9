"""The public rules of requests to an Ollama server, checked as strictly as it and the templates of its models do."""

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FIELDS = frozenset(
    {"model", "messages", "tools", "stream", "think", "format", "options", "keep_alive", "truncate", "shift"}
)
_MESSAGE_FIELDS = frozenset({"role", "content", "thinking", "images", "tool_calls", "tool_name", "tool_call_id"})
_ROLES = ("system", "user", "assistant", "tool")
_THINK = (True, False, "low", "medium", "high", "max")
_SCHEMA: dict[str, type | tuple[type, ...]] = {
    "type": (str, list),
    "description": str,
    "enum": list,
    "required": list,
    "anyOf": list,
    "properties": dict,
    "$defs": dict,
}
"""Types as which the server reads the keywords of a schema."""
_OPTIONS: dict[str, type | tuple[type, ...]] = {"num_ctx": int, "num_predict": int, "temperature": (int, float)}


def violations(body: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the body of a chat request, one sentence each; empty when it is legal."""
    return [*_head(body), *_tools(body.get("tools", ())), *_messages(body)]


def _head(body: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(body.keys() - _FIELDS):
        yield f"{name} is no field of a request, and would be passed over in silence"
    if not _text(body.get("model")):
        yield "model is not a name"
    if body.get("think", True) not in _THINK:
        yield f"think value {body['think']!r} is neither true nor false nor a level"
    for name in ("stream", "truncate", "shift"):
        if not isinstance(body.get(name, True), bool):
            yield f"{name} is neither true nor false"
    options = _dict(body.get("options"))
    for name, kind in _OPTIONS.items():
        if name in options and (not isinstance(options[name], kind) or isinstance(options[name], bool)):
            yield f"the option {name} has the value {options[name]!r}"
    if not _positive(options.get("num_ctx")):
        yield "num_ctx is not set, so that nobody knows how much of the conversation is read"
    if options.get("num_predict") == 0:
        yield "num_predict is 0, so that no answer can come"


def _tools(tools: object) -> Iterator[str]:
    for position, tool in enumerate(_dicts(tools)):
        function = _dict(tool.get("function"))
        if tool.get("type") != "function" or not _named(function.get("name")):
            yield f"tools[{position}] is not a function with a name of 1 to 64 letters, digits, _ and -"
        parameters = _dict(function.get("parameters"))
        if parameters.get("type") != "object":
            yield f"tools[{position}]: the parameters are not a schema of type object"
        for name in _unreadable(parameters):
            yield f"tools[{position}]: cannot unmarshal the property {name}"


def _unreadable(schema: Mapping[str, Any]) -> Iterator[str]:
    """Give the names of the words, and of the properties that are no objects, which the server cannot read."""
    for word, kind in _SCHEMA.items():
        if word in schema and not isinstance(schema[word], kind):
            yield word
    inner = [*_dict(schema.get("properties")).items(), *_dict(schema.get("$defs")).items()]
    choices = schema.get("anyOf")
    inner += [("anyOf", one) for one in cast("list[Any]", choices)] if isinstance(choices, list) else []
    for name, one in inner:
        if isinstance(one, dict):
            yield from _unreadable(cast("dict[str, Any]", one))
        else:
            yield name


def _messages(body: Mapping[str, Any]) -> Iterator[str]:
    messages = list(_dicts(body.get("messages")))
    if not messages:
        yield "there are no messages: nothing would be answered"
    for position, message in enumerate(messages):
        for problem in _message(message):
            yield f"messages[{position}]: {problem}"
    yield from _order([str(message.get("role")) for message in messages])
    yield from _pairs(messages)


def _message(message: Mapping[str, Any]) -> Iterator[str]:
    role, content = message.get("role"), message.get("content")
    for name in sorted(message.keys() - _MESSAGE_FIELDS):
        yield f"{name} is no field of a message, and would be passed over in silence"
    if role not in _ROLES:
        yield f"the role {role!r} does not exist"
    if not isinstance(content, str):
        yield "the content is no text"
    elif not (content.strip() or message.get("images") or message.get("tool_calls")):
        yield f"the {role} message is blank"
    if not isinstance(message.get("thinking", ""), str):
        yield "the thinking is no text"
    for image in cast("list[object]", message.get("images", [])):
        if not isinstance(image, str) or not _is_base64(image):
            yield "illegal base64 data in an image"
    if role != "assistant" and ("tool_calls" in message or "thinking" in message):
        yield f"a {role} message has calls or thinking"
    if role == "tool" and not (_text(message.get("tool_name")) and _text(message.get("tool_call_id"))):
        yield "the result names no call"
    for call in _dicts(message.get("tool_calls")):
        function = _dict(call.get("function"))
        if not _text(call.get("id")) or not _named(function.get("name")):
            yield f"a call has no id, or names {function.get('name')!r}, which no tool can be called"
        if not isinstance(function.get("arguments"), dict):
            yield "the arguments of a call are not an object"


def _order(roles: Sequence[str]) -> Iterator[str]:
    if "system" in roles[1:]:
        yield "a system message does not lead"
    spoken = [role for role in roles if role != "system"]
    if spoken[:1] != ["user"] or spoken[-1] == "assistant":
        yield "the conversation does not begin with the user, or ends with the assistant"
    for before, after in pairwise(spoken):
        if before == after != "tool":
            yield f"two {after} messages follow each other"


def _pairs(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    seen: set[str] = set()
    due: list[tuple[str, str]] = []
    for position, message in enumerate([*messages, {"role": "end"}]):
        if message.get("role") == "tool":
            answered = (str(message.get("tool_call_id")), str(message.get("tool_name")))
            if not due or due.pop(0) != answered:
                yield f"messages[{position}]: the result for {answered} answers no call, or is out of order"
            continue
        if due:
            yield f"messages[{position}]: the calls {due} have no result before it"
        calls = [(str(call.get("id")), _dict(call.get("function"))) for call in _dicts(message.get("tool_calls"))]
        due = [(call_id, str(function.get("name"))) for call_id, function in calls]
        for call_id, _ in due:
            if call_id in seen:
                yield f"messages[{position}]: a second call has the id {call_id}"
            seen.add(call_id)


def _is_base64(text: str) -> bool:
    try:
        return bool(b64decode(text, validate=True))
    except ValueError:
        return False


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _named(value: object) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _positive(value: object) -> bool:
    return isinstance(value, int) and value > 0


def _dict(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _dicts(value: object) -> Iterator[Mapping[str, Any]]:
    """Give the entries of a list as objects; what is none is an empty one, and fails every rule."""
    for entry in cast("list[Any]", value) if isinstance(value, list) else []:
        yield _dict(entry)
