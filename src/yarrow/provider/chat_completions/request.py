"""Encoder for the JSON body of a chat-completions request."""

import re
from collections.abc import Mapping
from typing import Any

from yarrow.message import Image, Message, Opaque, Role, Text, Thinking, ToolCall, ToolSpec
from yarrow.provider.base import CompletionRequest
from yarrow.provider.chat_completions.chunk import (
    CALL_FIELDS,
    MESSAGE_FIELDS,
    REASONING_DETAILS,
    decode_fields,
    replay_thinking,
)
from yarrow.provider.history_repair import ChatHistoryEncoder, Target
from yarrow.provider.request_body import Body, merge_body

_CLAUDE_MODEL = re.compile(r"(?:^|[/.:~-])claude-", re.IGNORECASE)
"""Models that cache only what a request marks, by their names at gateways."""
_CACHE_MARK: Body = {"cache_control": {"type": "ephemeral"}}


def encode_chat_request(
    request: CompletionRequest, target: Target, *, fields: Mapping[str, Any], extra: Mapping[str, Any]
) -> Body:
    """Return the body of a streaming request.

    `fields` are the backend's fields besides model, messages and tools. `extra` is the configured body, merged in last,
    objects recursively; null in it removes a field. A tool choice other than `auto` comes from the caller and stays.
    """
    body: Body = {"model": request.model, "messages": encode_messages(request, target)}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    body |= fields
    body = merge_body(body, extra)
    if request.tools and request.tool_choice != "auto":
        body["tool_choice"] = request.tool_choice
    body["stream"] = True
    return _add_cache_marks(body) if _CLAUDE_MODEL.search(request.model) else body


def encode_messages(request: CompletionRequest, target: Target) -> list[Body]:
    """Return the system prompt and the repaired history in wire format."""

    def make_encoder() -> ChatHistoryEncoder:
        return ChatHistoryEncoder(target, lambda history: map(_message, history))

    system = [{"role": "system", "content": request.system}] if request.system.strip() else []
    return [*system, *target.cache.encode(request.messages, target, make_encoder)]


def _add_cache_marks(body: Body) -> Body:
    """Return the body with the system prompt and the last message with text marked for the backend's cache."""
    sent: list[Body] = [*body["messages"]]
    system = next((at for at, message in enumerate(sent) if message["role"] == "system"), -1)
    last = next((at for at in range(len(sent) - 1, -1, -1) if sent[at]["content"] and at != system), -1)
    for at in {system, last} - {-1}:
        sent[at] = _mark_message(sent[at])
    return body | {"messages": sent}


def _mark_message(message: Body) -> Body:
    content = message["content"]
    parts: list[Body] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return message | {"content": [*parts[:-1], parts[-1] | _CACHE_MARK]}


def _message(message: Message) -> Body:
    match message.role:
        case Role.USER:
            return {"role": "user", "content": _user_content(message)}
        case Role.ASSISTANT:
            return _assistant(message)
        case Role.TOOL:
            return {"role": "tool", "tool_call_id": message.tool_call_id, "content": _join_paragraphs(message)}


def _user_content(message: Message) -> str | list[Body]:
    """Return a plain string if there is no image: lists confuse some models."""
    if not message.images:
        return _join_paragraphs(message)
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
    if calls := message.tool_calls:
        body["tool_calls"] = [_call(call) for call in calls]
    signed: Body = {}
    for block in message.content:
        if isinstance(block, Opaque):
            for name, value in decode_fields(block.data, MESSAGE_FIELDS).items():
                signed[name] = [*signed.get(name, []), *value] if isinstance(value, list) else value
    # The details contain the thinking text too.
    thinking = (
        {}
        if REASONING_DETAILS in signed
        else replay_thinking(block for block in message.content if isinstance(block, Thinking))
    )
    return body | thinking | signed


def _call(call: ToolCall) -> Body:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function} | decode_fields(call.opaque, CALL_FIELDS)


def _tool(tool: ToolSpec) -> Body:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _join_paragraphs(message: Message) -> str:
    return "\n\n".join([block.text for block in message.content if isinstance(block, Text)])
