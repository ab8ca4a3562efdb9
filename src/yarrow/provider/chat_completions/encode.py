"""Builds the JSON body of a chat-completions request."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from yarrow.message import Image, Message, Opaque, Role, Text, Thinking, ToolCall, ToolSpec
from yarrow.provider.base import CompletionRequest
from yarrow.provider.chat_completions.reasoning_details import FIELD, details_of
from yarrow.provider.chat_completions.thinking import replayed
from yarrow.provider.history import Target, chat

Body = dict[str, Any]


def encode(request: CompletionRequest, target: Target, *, fields: Mapping[str, Any], extra: Mapping[str, Any]) -> Body:
    """Return the body of a streaming request.

    `fields` is what the backend wants besides model, messages and tools. `extra` is the configured body, merged in
    last, objects into objects; null there takes a field out. A tool choice other than `auto` is the caller's and
    stays.
    """
    body: Body = {"model": request.model, "messages": messages(request, target)}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    body |= fields
    body = _merged(body, extra)
    if request.tools and request.tool_choice != "auto":
        body["tool_choice"] = request.tool_choice
    body["stream"] = True
    return body


def messages(request: CompletionRequest, target: Target) -> list[Body]:
    """Return the system prompt and the repaired history as the wire has them."""
    system = [{"role": "system", "content": request.system}] if request.system.strip() else []
    return [*system, *map(_message, chat(request.messages, target))]


def to_json(body: Body) -> bytes:
    """Return the bytes of a body; half a surrogate pair, which no JSON can hold, becomes U+FFFD."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(body))


def _message(message: Message) -> Body:
    match message.role:
        case Role.USER:
            return {"role": "user", "content": _user_content(message)}
        case Role.ASSISTANT:
            return _assistant(message)
        case Role.TOOL:
            return {"role": "tool", "tool_call_id": message.tool_call_id, "content": _paragraphs(message)}


def _user_content(message: Message) -> str | list[Body]:
    """Return a plain string where there is no image: lists confuse some models."""
    if not message.images:
        return _paragraphs(message)
    parts: list[Body] = []
    for block in message.content:
        if isinstance(block, Text):
            parts.append({"type": "text", "text": block.text})
        elif isinstance(block, Image):
            url = f"data:{block.media_type};base64,{block.data}"
            parts.append({"type": "image_url", "image_url": {"url": url}})
    return parts


def _assistant(message: Message) -> Body:
    body: Body = {"role": "assistant", "content": message.text or None}
    if message.tool_calls:
        body["tool_calls"] = [_call(call) for call in message.tool_calls]
    details = [detail for block in message.content if isinstance(block, Opaque) for detail in details_of(block.data)]
    # The details hold the thinking text too.
    thinking = replayed(block for block in message.content if isinstance(block, Thinking))
    return body | ({FIELD: details} if details else thinking)


def _call(call: ToolCall) -> Body:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _tool(tool: ToolSpec) -> Body:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _paragraphs(message: Message) -> str:
    return "\n\n".join(block.text for block in message.content if isinstance(block, Text))


def _merged(base: Mapping[str, Any], extra: Mapping[str, Any]) -> Body:
    """Return `base` with `extra` on top."""
    result = dict(base)
    for name, value in extra.items():
        known = result.get(name)
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict) and isinstance(known, dict):
            result[name] = _merged(cast("Body", known), cast("Body", value))
        else:
            result[name] = value
    return result


def _encodable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {_encodable(name): _encodable(item) for name, item in cast("Body", value).items()}
    if isinstance(value, list):
        return [_encodable(item) for item in cast("Iterable[object]", value)]
    return value
