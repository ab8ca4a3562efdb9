"""Distinction of models that can chat from those for embeddings, ranking, speech and images, by what a server lists."""

import re
from collections.abc import Sequence
from typing import Any, cast

_OTHER_NAME = re.compile(
    r"embed|rerank|minilm|whisper|transcri(?:be|ption)|moderation|dall-e|stable-diffusion|paraphrase-"
    r"|(?<![a-z0-9])(?:bge|e5|gte|tts|clip|sdxl|flux|kokoro|piper|parakeet|gpt-image|sora|rerank)(?![a-z])"
)
"""Words and names of families in the names of models that cannot chat."""
_OTHER_TYPES = ("embedding", "embeddings", "rerank", "reranker", "audio", "image", "tts", "stt", "transcription")
"""Values of the field `type` in lists of LM Studio and gateways."""
_CHAT_CAPABILITIES = ("completion", "chat", "completions", "text-generation", "tool_use", "tools", "vision")


def is_chat_model(row: dict[str, Any], name: str) -> bool:
    """Return whether a model in a decoded list can chat: by its capabilities, by its type, else by its name."""
    capabilities = row.get("capabilities")
    if isinstance(capabilities, list) and capabilities:
        return can_chat(cast("Sequence[object]", capabilities))
    kind = row.get("type")
    if isinstance(kind, str) and kind.lower() in _OTHER_TYPES:
        return False
    return is_chat_name(name)


def can_chat(capabilities: Sequence[object]) -> bool:
    """Return whether the capabilities that a server reports are those of a model that can chat."""
    return any(one in _CHAT_CAPABILITIES for one in capabilities)


def is_chat_name(name: str) -> bool:
    """Return whether nothing in a name says that the model cannot chat."""
    return _OTHER_NAME.search(name.lower()) is None
