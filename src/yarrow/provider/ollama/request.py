"""Encoder for requests of Ollama's chat API."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from yarrow.config.settings import ProviderSettings
from yarrow.message import Image, Message, Role, Text, ToolSpec
from yarrow.provider.base import CompletionRequest
from yarrow.provider.history_repair import ChatHistoryEncoder, Target
from yarrow.provider.ollama.capabilities import OllamaCapabilities, get_replayed_thinking, make_think_field
from yarrow.provider.request_body import Body, merge_body

MEDIA_TYPES = ("image/png", "image/jpeg", "image/webp")


def encode_ollama_request(
    request: CompletionRequest, target: Target, *, settings: ProviderSettings, capabilities: OllamaCapabilities
) -> Body:
    """Return the body of a streaming request, in values that `to_json` accepts.

    The request's values take precedence over the configured ones. The configured body is merged in last, objects
    recursively; null in it removes a field. The format has no tool choice: `none` omits the tools.
    """
    body: Body = {"model": request.model, "messages": _messages(request, target, capabilities)}
    if request.tools and capabilities.tools and request.tool_choice != "none":
        body["tools"] = [_tool(tool) for tool in request.tools]
    body |= make_think_field(request.thinking, capabilities.thinking)
    body["options"] = _make_options(request, settings, capabilities.window)
    # Otherwise the server silently drops the beginning of a prompt that does not fit.
    body |= {"truncate": False, "shift": False}
    body = merge_body(body, settings.extra_body)
    body["stream"] = True
    return body


def _make_options(request: CompletionRequest, settings: ProviderSettings, window: int) -> Body:
    # Always the same context: another one makes the server reload the model.
    options: Body = {"num_ctx": window}
    if limit := request.max_tokens or settings.max_tokens:
        options["num_predict"] = limit
    temperature = settings.temperature if request.temperature is None else request.temperature
    if temperature is not None:
        options["temperature"] = temperature
    return options


def _messages(request: CompletionRequest, target: Target, capabilities: OllamaCapabilities) -> list[Body]:
    def takes(image: Image) -> bool:
        return capabilities.images and image.media_type in MEDIA_TYPES and target.takes_image(image)

    def make_encoder() -> ChatHistoryEncoder:
        return ChatHistoryEncoder(Target(target.provider, target.model, takes), _encode_conversation)

    system = [{"role": "system", "content": request.system}] if request.system.strip() else []
    return [*system, *target.cache.encode(request.messages, (target, capabilities.images), make_encoder)]


def _encode_conversation(history: Sequence[Message]) -> Iterator[Body]:
    names: dict[str, str] = {}
    for message in history:
        match message.role:
            case Role.USER:
                images = [image.data for image in message.images]
                yield {"role": "user", "content": _join_paragraphs(message)} | ({"images": images} if images else {})
            case Role.ASSISTANT:
                names = {call.id: call.name for call in message.tool_calls}
                yield _assistant(message)
            case Role.TOOL:
                # Servers pair by name or by id, depending on their version.
                pair = {"tool_name": names[message.tool_call_id], "tool_call_id": message.tool_call_id}
                yield {"role": "tool", **pair, "content": _join_paragraphs(message)}


def _assistant(message: Message) -> Body:
    body: Body = {"role": "assistant", "content": message.text}
    if thinking := get_replayed_thinking(message):
        body["thinking"] = thinking
    if message.tool_calls:
        body["tool_calls"] = [
            # As raw text, so that numbers keep their digits and caches see the same bytes.
            {"id": call.id, "function": {"index": at, "name": call.name, "arguments": msgspec.Raw(call.arguments)}}
            for at, call in enumerate(message.tool_calls)
        ]
    return body


def _tool(tool: ToolSpec) -> Body:
    described = {"name": tool.name, "description": tool.description, "parameters": simplify_schema(tool.parameters)}
    return {"type": "function", "function": described}


def _join_paragraphs(message: Message) -> str:
    return "\n\n".join(block.text for block in message.content if isinstance(block, Text))


_SUBSCHEMAS = ("properties", "$defs")
"""Keywords whose values are schemas by name."""
_KINDS: dict[str, type | tuple[type, ...]] = {
    "type": (str, list),
    "description": str,
    "enum": list,
    "required": list,
    "anyOf": list,
    "properties": dict,
    "$defs": dict,
}
"""Types that the server expects for these keywords; it refuses a request with any other."""


def simplify_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a schema without the parts that the server cannot read."""
    plain = {word: value for word, value in schema.items() if isinstance(value, _KINDS.get(word, object))}
    for word in _SUBSCHEMAS:
        if word in plain:
            plain[word] = {name: _simplify(one) for name, one in cast("dict[str, Any]", plain[word]).items()}
    if "anyOf" in plain:
        plain["anyOf"] = [_simplify(one) for one in cast("list[Any]", plain["anyOf"])]
    return plain


def _simplify(schema: object) -> dict[str, Any]:
    """Return a schema as an object: the server does not know the schemas true and false."""
    return simplify_schema(cast("dict[str, Any]", schema)) if isinstance(schema, dict) else {}
