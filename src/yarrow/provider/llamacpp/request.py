"""What a request to a llama.cpp server has besides messages and tools."""

from collections.abc import Sequence
from typing import Any

from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.message import Message, Role, ThinkingLevel
from yarrow.provider.base import CompletionRequest

_EFFORTS = {ThinkingLevel.MINIMAL: "low", ThinkingLevel.LOW: "low", ThinkingLevel.MEDIUM: "medium"}
"""The efforts that chat templates know; what is not here is `high`."""


def make_llamacpp_fields(request: CompletionRequest, settings: ProviderSettings) -> dict[str, Any]:
    """Return the fields; the request's values come before the configured ones."""
    result: dict[str, Any] = {"stream_options": {"include_usage": True}}
    if limit := request.max_tokens or settings.max_tokens:
        result["max_tokens"] = limit
    temperature = settings.temperature if request.temperature is None else request.temperature
    if temperature is not None:
        result["temperature"] = temperature
    # Many templates let a model think unless told not to, which costs a slow machine minutes.
    if request.thinking is ThinkingLevel.OFF:
        result["chat_template_kwargs"] = {"enable_thinking": False}
    else:
        effort = _EFFORTS.get(request.thinking, "high")
        result["chat_template_kwargs"] = {"enable_thinking": True, "reasoning_effort": effort}
    return result


def refuse_new_images(messages: Sequence[Message], name: str) -> None:
    """Raise UNSUPPORTED_FEATURE when the user sends an image now; for those of the history a note stands."""
    said = [message for message in messages if not message.incomplete]
    if said and said[-1].role is Role.USER and said[-1].images:
        sentence = f"{name} takes no images; send the message without them, or choose another provider"
        raise ProviderError(Code.UNSUPPORTED_FEATURE, sentence)
