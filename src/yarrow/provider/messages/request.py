"""Builds the JSON body of a messages request."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from yarrow.config.settings import ProviderSettings
from yarrow.message import Message, Role, ThinkingLevel, ToolSpec
from yarrow.provider.base import CompletionRequest
from yarrow.provider.body import Body, merge_body
from yarrow.provider.history import Target, drop_thinking
from yarrow.provider.messages.blocks import encode_conversation
from yarrow.provider.messages.capabilities import MessagesCapabilities
from yarrow.provider.messages.thinking import make_thinking_fields, may_think

DEFAULT_MAX_TOKENS = 32_000
"""Tokens of an answer of a model whose own limit is known, when nobody says more: the format insists on a limit."""
UNKNOWN_MODEL_MAX_TOKENS = 8_192
"""The same, of an unknown model."""
_CACHE_MARK: Body = {"cache_control": {"type": "ephemeral"}}


def encode_messages_request(
    request: CompletionRequest,
    target: Target,
    *,
    settings: ProviderSettings,
    capabilities: MessagesCapabilities,
    accepts_signature: Callable[[str], bool] = lambda _: True,
) -> Body:
    """Return the body of a streaming request, in values that `to_json` takes.

    The request's values come before the configured ones. The configured body is merged in last, objects into
    objects; null there takes a field out. A tool choice other than `auto` is the caller's and stays. `takes_seal`
    tells whether a signature of thinking was not refused so far.
    """
    messages = encode_conversation(_drop_unbound_thinking(request, capabilities), target, accepts_signature)
    choice = _find_tool_choice(request, messages, capabilities)
    body: Body = {"model": request.model, "messages": messages}
    if request.system.strip():
        body["system"] = [{"type": "text", "text": request.system}]
    if tools := [_tool(tool) for tool in request.tools] or _infer_tools(messages):
        body["tools"] = tools
    may = capabilities.style != "budget" or (choice != "any" and may_think(messages))
    body |= _make_fields(request if may else replace(request, thinking=ThinkingLevel.OFF), settings, capabilities)
    body = merge_body(_add_cache_marks(body), settings.extra_body)
    if choice:
        body["tool_choice"] = {"type": choice}
    body["stream"] = True
    return body


def _drop_unbound_thinking(request: CompletionRequest, capabilities: MessagesCapabilities) -> Sequence[Message]:
    """Return the messages without the thoughts that a model bound to a beginning which is another now.

    A model with a budget insists on those of the turn whose tools run, and is not of those that bind them.
    """
    messages, end = request.messages, request.unbound
    if end and capabilities.style == "budget":
        end = min(end, max((at for at, message in enumerate(messages) if message.role is Role.USER), default=0))
    return (*map(drop_thinking, messages[:end]), *messages[end:])


def _make_fields(request: CompletionRequest, settings: ProviderSettings, capabilities: MessagesCapabilities) -> Body:
    limit = max(request.max_tokens, 0) or settings.max_tokens
    if capabilities.max_output:
        limit = min(limit or DEFAULT_MAX_TOKENS, capabilities.max_output)
    if thinking := make_thinking_fields(request.thinking, limit or UNKNOWN_MODEL_MAX_TOKENS, capabilities):
        return thinking
    temperature = settings.temperature if request.temperature is None else request.temperature
    fields: Body = {"max_tokens": limit or UNKNOWN_MODEL_MAX_TOKENS}
    if temperature is not None and capabilities.takes_temperature:
        # Other backends go up to 2, this one refuses what is above 1.
        fields["temperature"] = min(max(temperature, 0.0), 1.0)
    return fields


def _find_tool_choice(request: CompletionRequest, messages: Sequence[Body], capabilities: MessagesCapabilities) -> str:
    """Return the type of the tool choice; empty leaves it to the model and to the configured body."""
    if not request.tools:
        # The tools are only told because the history has calls.
        return "none" if _infer_tools(messages) else ""
    match request.tool_choice:
        case "auto":
            return ""
        case "none":
            return "none"
        case "required":
            return "any" if capabilities.takes_forced_choice else ""


def _infer_tools(messages: Sequence[Body]) -> list[Body]:
    """Return the tools that a history calls: the backend takes no call in it without a list of tools."""
    calls = [block for message in messages for block in message["content"] if block["type"] == "tool_use"]
    names = dict.fromkeys(call["name"] for call in calls)
    return [{"name": name, "input_schema": {"type": "object"}} for name in names]


def _tool(tool: ToolSpec) -> Body:
    described = {"description": tool.description} if tool.description.strip() else {}
    return {"name": tool.name, **described, "input_schema": tool.parameters}


def _add_cache_marks(body: Body) -> Body:
    """Return the body with the ends of what the next request repeats marked for the backend's cache."""
    *before, last = body["messages"]
    marked = {name: _mark_last_block(body[name]) for name in ("system", "tools") if name in body}
    return body | marked | {"messages": [*before, last | {"content": _mark_last_block(last["content"])}]}


def _mark_last_block(blocks: Sequence[Body]) -> list[Body]:
    return [*blocks[:-1], blocks[-1] | _CACHE_MARK]
