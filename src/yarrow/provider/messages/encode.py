"""Builds the JSON body of a messages request."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from yarrow.config.settings import ProviderSettings
from yarrow.message import Message, Role, ThinkingLevel, ToolSpec
from yarrow.provider.base import CompletionRequest
from yarrow.provider.body import Body, merged
from yarrow.provider.history import Target, without_thoughts
from yarrow.provider.messages.abilities import Abilities
from yarrow.provider.messages.blocks import conversation
from yarrow.provider.messages.thinking import may_think, thinking_fields

USUAL_LIMIT = 32_000
"""Tokens of an answer of a model whose own limit is known, when nobody says more: the format insists on a limit."""
CAUTIOUS_LIMIT = 8_192
"""The same, of an unknown model."""
_MARK: Body = {"cache_control": {"type": "ephemeral"}}


def encode(
    request: CompletionRequest,
    target: Target,
    *,
    settings: ProviderSettings,
    abilities: Abilities,
    takes_seal: Callable[[str], bool] = lambda _: True,
) -> Body:
    """Return the body of a streaming request, in values that `to_json` takes.

    The request's values come before the configured ones. The configured body is merged in last, objects into
    objects; null there takes a field out. A tool choice other than `auto` is the caller's and stays. `takes_seal`
    tells whether a signature of thinking was not refused so far.
    """
    messages = conversation(_still_bound(request, abilities), target, takes_seal)
    choice = _choice(request, messages, abilities)
    body: Body = {"model": request.model, "messages": messages}
    if request.system.strip():
        body["system"] = [{"type": "text", "text": request.system}]
    if tools := [_tool(tool) for tool in request.tools] or _told_tools(messages):
        body["tools"] = tools
    may = abilities.style != "budget" or (choice != "any" and may_think(messages))
    body |= _fields(request if may else replace(request, thinking=ThinkingLevel.OFF), settings, abilities)
    body = merged(_marked(body), settings.extra_body)
    if choice:
        body["tool_choice"] = {"type": choice}
    body["stream"] = True
    return body


def _still_bound(request: CompletionRequest, abilities: Abilities) -> Sequence[Message]:
    """Return the messages without the thoughts that a model bound to a beginning which is another now.

    A model with a budget insists on those of the turn whose tools run, and is not of those that bind them.
    """
    messages, end = request.messages, request.unbound
    if end and abilities.style == "budget":
        end = min(end, max((at for at, message in enumerate(messages) if message.role is Role.USER), default=0))
    return (*map(without_thoughts, messages[:end]), *messages[end:])


def _fields(request: CompletionRequest, settings: ProviderSettings, abilities: Abilities) -> Body:
    limit = max(request.max_tokens, 0) or settings.max_tokens
    if abilities.max_output:
        limit = min(limit or USUAL_LIMIT, abilities.max_output)
    if thinking := thinking_fields(request.thinking, limit or CAUTIOUS_LIMIT, abilities):
        return thinking
    temperature = settings.temperature if request.temperature is None else request.temperature
    fields: Body = {"max_tokens": limit or CAUTIOUS_LIMIT}
    if temperature is not None and abilities.tempered:
        # Other backends go up to 2, this one refuses what is above 1.
        fields["temperature"] = min(max(temperature, 0.0), 1.0)
    return fields


def _choice(request: CompletionRequest, messages: Sequence[Body], abilities: Abilities) -> str:
    """Return the type of the tool choice; empty leaves it to the model and to the configured body."""
    if not request.tools:
        # The tools are only told because the history has calls.
        return "none" if _told_tools(messages) else ""
    match request.tool_choice:
        case "auto":
            return ""
        case "none":
            return "none"
        case "required":
            return "any" if abilities.forced else ""


def _told_tools(messages: Sequence[Body]) -> list[Body]:
    """Return the tools that a history calls: the backend takes no call in it without a list of tools."""
    calls = [block for message in messages for block in message["content"] if block["type"] == "tool_use"]
    names = dict.fromkeys(call["name"] for call in calls)
    return [{"name": name, "input_schema": {"type": "object"}} for name in names]


def _tool(tool: ToolSpec) -> Body:
    described = {"description": tool.description} if tool.description.strip() else {}
    return {"name": tool.name, **described, "input_schema": tool.parameters}


def _marked(body: Body) -> Body:
    """Return the body with the ends of what the next request repeats marked for the backend's cache."""
    *before, last = body["messages"]
    marked = {name: _end_marked(body[name]) for name in ("system", "tools") if name in body}
    return body | marked | {"messages": [*before, last | {"content": _end_marked(last["content"])}]}


def _end_marked(blocks: Sequence[Body]) -> list[Body]:
    return [*blocks[:-1], blocks[-1] | _MARK]
