"""Puts a request in the terms of the vendor's library."""

from typing import Any

from msgspec import Struct

from yarrow.config.settings import ProviderSettings
from yarrow.message import ToolSpec
from yarrow.provider.base import CompletionRequest
from yarrow.provider.gemini.contents import WireValue, encode_contents
from yarrow.provider.gemini.tool_schema import reduce_schema
from yarrow.provider.history import Target
from yarrow.provider.surrogates import replace_surrogates


class GeminiRequest(Struct, frozen=True):
    """The arguments of the library's `generate_content_stream`, as plain values."""

    model: str
    contents: list[WireValue]
    config: dict[str, Any]


def encode_gemini_request(request: CompletionRequest, target: Target, settings: ProviderSettings) -> GeminiRequest:
    """Return what the library is called with; the request's values come before the configured ones.

    The configured body is merged in last, objects into objects. Nothing is said about thinking: how much of it is
    right is left to the model.
    """
    config: dict[str, Any] = {
        # One call of ours is one request: tools are run, and answers continued, by the agent alone.
        "automatic_function_calling": {"disable": True},
        "automatic_continuation": False,
    }
    if request.system.strip():
        config["system_instruction"] = {"parts": [{"text": replace_surrogates(request.system)}]}
    if request.tools:
        config["tools"] = [{"function_declarations": [_tool(tool) for tool in request.tools]}]
        if mode := {"auto": "", "none": "NONE", "required": "ANY"}[request.tool_choice]:
            config["tool_config"] = {"function_calling_config": {"mode": mode}}
    if limit := max(request.max_tokens, 0) or settings.max_tokens:
        config["max_output_tokens"] = limit
    temperature = settings.temperature if request.temperature is None else request.temperature
    if temperature is not None:
        config["temperature"] = min(max(temperature, 0.0), 2.0)
    if settings.extra_body:
        config["http_options"] = {"extra_body": settings.extra_body}
    return GeminiRequest(request.model, encode_contents(request.messages, target), config)


def _tool(tool: ToolSpec) -> WireValue:
    declared: WireValue = {"name": tool.name}
    if tool.description.strip():
        declared["description"] = replace_surrogates(tool.description)
    schema = reduce_schema(tool.parameters)
    # An object without properties is refused; a tool without parameters is not.
    return declared | ({"parameters_json_schema": schema} if schema.get("properties") else {})
