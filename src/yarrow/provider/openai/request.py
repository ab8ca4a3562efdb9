"""What a request to an OpenAI-compatible server has besides messages and tools."""

from typing import Any

from yarrow.config.settings import ProviderSettings
from yarrow.message import ThinkingLevel
from yarrow.provider.base import CompletionRequest
from yarrow.provider.openai.address import OpenAiAddress

_REASONING_PREFIXES = ("o1", "o3", "o4", "gpt-5", "gpt-6")
"""Prefixes of the vendor's models that refuse a temperature."""


def make_openai_fields(
    request: CompletionRequest, settings: ProviderSettings, address: OpenAiAddress
) -> dict[str, Any]:
    """Return the fields; the request's values come before the configured ones."""
    result: dict[str, Any] = {"stream_options": {"include_usage": True}}
    if limit := request.max_tokens or settings.max_tokens:
        result["max_completion_tokens" if address.is_official else "max_tokens"] = limit
    thinks = request.thinking is not ThinkingLevel.OFF
    if thinks:
        result["reasoning_effort"] = _find_effort(request.thinking, address)
    temperature = settings.temperature if request.temperature is None else request.temperature
    fixed = address.is_official and (thinks or request.model.startswith(_REASONING_PREFIXES))
    if temperature is not None and not fixed:
        result["temperature"] = temperature
    return result


def _find_effort(level: ThinkingLevel, address: OpenAiAddress) -> str:
    # The vendor's chat endpoint knows nothing above xhigh.
    return "xhigh" if address.is_official and level is ThinkingLevel.MAX else level.value
